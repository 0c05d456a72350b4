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

// The numbers that the system gives to nodes may have gaps.
TEST(StagingPool, ItsRingLiesBesideTheDevice) {
  topology::Machine machine = topology::synthetic("numa:2 core:1 pu:1");
  machine.nodes[1].os_index = 4;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::vector<SlotSpec> specs(12, {0, page});
  struct Case {
    std::optional<std::uint32_t> attached_to;
    std::uint32_t ring_node;
  };
  for (const Case& c : {Case{{}, 0}, {0, 0}, {4, 1}, {1, 0}}) {
    for (const std::size_t limit : {std::size_t{0}, std::size_t{5}}) {  // pageable, pinned
      testing::RegisteringBackend backend;
      backend.attached_to = c.attached_to;
      const StagingPool pool(backend, machine, specs, {limit, false, 0});
      ASSERT_FALSE(pool.ring().empty());
      for (const StagingPool::RegionInfo& region : pool.regions()) {
        const bool ring = region.bytes.data() == pool.ring()[0].bytes.data();
        EXPECT_EQ(region.node, ring ? c.ring_node : 0) << region.purpose << ", limit " << limit;
      }
    }
  }
}

}  // namespace
}  // namespace outboard::memory
