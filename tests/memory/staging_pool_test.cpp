// SPDX-License-Identifier: Apache-2.0
#include "memory/staging_pool.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <vector>

#include "memory/registering_backend.hpp"
#include "topology/machine.hpp"

namespace outboard::memory {
namespace {

TEST(StagingPool, MapsWhatItPlans) {
  const topology::Machine machine = topology::synthetic("numa:2 core:1 pu:1");
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<SlotSpec> specs;
  for (std::uint32_t i = 0; i < 12; ++i) specs.push_back({i % 2, (1 + i % 3) * page});
  for (const std::optional<std::size_t> limit : {std::optional<std::size_t>{}, {0}, {1}, {5}}) {
    for (const bool sums : {false, true}) {
      for (const std::size_t ring_there : {std::size_t{0}, 3 * page}) {
        testing::RegisteringBackend backend;
        const StagingPool::Options options{limit, sums, ring_there};
        const StagingPool pool(backend, machine, specs, options);
        std::size_t mapped = 0;
        for (const StagingPool::RegionInfo& region : pool.regions()) mapped += region.bytes.size();
        EXPECT_EQ(StagingPool::planned_bytes(specs, options), mapped)
            << "pinned " << (limit ? std::to_string(*limit) : "all") << ", sums " << sums
            << ", a ring of " << ring_there;
      }
    }
  }
  EXPECT_EQ(StagingPool::planned_bytes({}, {}), 0U);
}

}  // namespace
}  // namespace outboard::memory
