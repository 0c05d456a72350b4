// SPDX-License-Identifier: Apache-2.0
// save() and load() make no second copy of the state, and read no byte twice.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "support/temporary_folder.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard {
namespace {

using namespace testing;
using namespace literals;

constexpr std::uint64_t kElems = 4'000'000;
constexpr std::uint64_t kStateBytes = kElems * 12;

/// The number behind a name in a file of /proc.
std::uint64_t number_in(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    std::uint64_t value = 0;
    if (word == name && in >> value) return value;
  }
  ADD_FAILURE() << "no " << name << " in " << file;
  return 0;
}

/// How far this process's memory rises above what it is now while `call` runs.
template <class Call>
std::uint64_t rise_bytes(Call call) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak is what is held now
  const std::uint64_t before = number_in("/proc/self/status", "VmRSS:");
  call();
  const std::uint64_t peak = number_in("/proc/self/status", "VmHWM:");
  return peak > before ? (peak - before) * 1024 : 0;
}

class CheckpointMemory : public ::testing::TestWithParam<Placement> {};

TEST_P(CheckpointMemory, IsASmallBuffer) {
  TinyOptions options;
  options.device.memory_bytes = 128_MiB;
  options.config.placement = GetParam();
  options.parameters = {{"a", kElems / 2}, {"b", kElems / 4}, {"c", kElems / 4}};
  options.max_steps = 1;
  const TemporaryFolder folder;
  TinyTrainer trainer(options);
  trainer.start();
  const std::uint64_t digest = trainer.engine().state_digest();
  SaveReport saved;
  EXPECT_LE(rise_bytes([&] { saved = trainer.engine().save(folder.path("run")); }), 16_MiB);
  EXPECT_LE(saved.bytes, kStateBytes + kStateBytes / 100 + 65536);
  const std::uint64_t read = number_in("/proc/self/io", "rchar:");
  EXPECT_LE(rise_bytes([&] { trainer.engine().load(folder.path("run")); }), 16_MiB);
  EXPECT_LE(number_in("/proc/self/io", "rchar:") - read, kStateBytes + kStateBytes / 20);
  EXPECT_EQ(trainer.engine().state_digest(), digest);
}

INSTANTIATE_TEST_SUITE_P(Placements, CheckpointMemory,
                         ::testing::Values(Placement::host, Placement::device_resident),
                         [](const auto& tested) {
                           return tested.param == Placement::host ? "host" : "device_resident";
                         });

}  // namespace
}  // namespace outboard
