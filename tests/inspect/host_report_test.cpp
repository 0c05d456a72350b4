// SPDX-License-Identifier: Apache-2.0
#include "inspect/host_report.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "support/expect_error.hpp"
#include "topology/fixture_gpu.hpp"

namespace outboard::inspect {
namespace {

namespace fixture = testing::fixture;
using testing::FixtureRoot;
using Threads = std::vector<std::uint32_t>;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Nothing that a made-up machine asks; fails the test if it does.
Probes never_asked() {
  const auto fail = [] {
    ADD_FAILURE() << "the running system was asked";
    return 0;
  };
  return {.driver = [=] { return (void)fail(), topology::DriverAnswer{}; },
          .binding = {.mbind = fail, .set_mempolicy = fail, .sched_setaffinity = fail},
          .visible_devices = "0"};
}

Probes answering(topology::DriverAnswer answer, std::optional<std::string> visible) {
  const auto allowed = [] { return 0; };
  return {.driver = [=] { return answer; },
          .binding = {.mbind = [] { return EPERM; },
                      .set_mempolicy = allowed,
                      .sched_setaffinity = allowed},
          .visible_devices = std::move(visible)};
}

TEST(HostReport, AMadeUpMachineIsReadAndNothingElse) {
  const HostReport report = inspect({.synthetic = "numa:2 core:4 pu:2"}, never_asked());
  EXPECT_EQ(report.threads.threads_per_node, (Threads{4, 3}));
  ASSERT_EQ(report.shares.size(), 2U);
  EXPECT_DOUBLE_EQ(report.shares[0], 4.0 / 7.0);
  EXPECT_DOUBLE_EQ(report.shares[1], 3.0 / 7.0);
  EXPECT_FALSE(report.driver || report.binding || report.kernels || report.memory.known());
}

TEST(HostReport, BucketsAreSharedOutByThreadsForEveryPrefix) {
  const HostReport report =
      inspect({.synthetic = "numa:4 core:4 pu:1", .reserve_cores = 3}, never_asked());
  EXPECT_EQ(report.threads.threads_per_node, (Threads{4, 4, 4, 1}));
  ASSERT_GE(report.bucket_nodes.size(), 13U);
  std::vector<double> given(4, 0.0);
  for (std::size_t i = 0; i < report.bucket_nodes.size(); ++i) {
    given.at(report.bucket_nodes[i]) += 1.0;
    for (std::size_t node = 0; node < given.size(); ++node) {
      EXPECT_LE(std::abs(given[node] - report.shares[node] * static_cast<double>(i + 1)), 1.0);
    }
  }
}

/// As the engine does, which gives up its nodes then.
TEST(HostReport, AQuotaOfFewerCoresThanNodesMakesThemOne) {
  const FixtureRoot root;
  fixture::write_machine(root, {});
  root.write("/proc/self/cgroup", "0::/job\n");
  root.write("/sys/fs/cgroup/job/cpu.max", "100000 100000\n");
  EXPECT_EQ(inspect({.root = root.path()}, never_asked()).threads.threads_per_node, (Threads{1}));
  const HostReport forced = inspect({.root = root.path(), .threads_per_node = 2}, never_asked());
  EXPECT_EQ(forced.threads.threads_per_node, (Threads{2, 2}));
}

TEST(HostReport, ThreadsThatAreGivenWin) {
  const HostReport report =
      inspect({.synthetic = "numa:2 core:4 pu:1", .threads_per_node = 9}, never_asked());
  EXPECT_EQ(report.threads.threads_per_node, (Threads{9, 9}));
  testing::expect_error(ErrorCode::invalid_config, {"banana"},
                        [] { (void)inspect({.synthetic = "banana"}, never_asked()); });
}

TEST(HostReport, AFolderIsAnotherMachineWithItsOwnGpusAndLimits) {
  const FixtureRoot root;
  fixture::write_machine(root, {});
  fixture::write_gpu(root, {.address = "0000:65:00.0", .numa_node = "1"});
  root.write("/proc/self/limits", "Max locked memory  65536  65536  bytes\n");
  const HostReport report = inspect({.root = root.path()}, never_asked());
  ASSERT_EQ(report.gpus.size(), 1U);
  EXPECT_EQ(report.gpus[0].node, 1U);
  ASSERT_EQ(report.visible.gpus.size(), 1U) << "the variable is not that machine's";
  EXPECT_EQ(report.limits.lock_bytes, 65536U);
  EXPECT_EQ(report.memory.source, root.path() + "/proc/meminfo");
  EXPECT_FALSE(report.driver || report.binding || report.kernels);
}

TEST(HostReport, ThisMachineIsAskedForDriverBindingAndKernels) {
  topology::DriverAnswer answer;
  answer.devices = {{"00000000:F1:00.0", "GPU-1", "first", 1, 0},
                    {"00000000:F2:00.0", "GPU-2", "second", 1, 0}};
  const HostReport report = inspect({}, answering(answer, "1,0"));
  ASSERT_TRUE(report.driver && report.binding && report.kernels);
  EXPECT_EQ(report.driver->report.state, topology::DriverState::ready);
  ASSERT_TRUE(report.binding->memory);
  EXPECT_EQ(report.binding->memory->call, "mbind");
  EXPECT_FALSE(report.kernels->supported.empty());
  const bool with_cuda = report.backends.size() > 1;  // as the build found a toolkit or none
  const std::vector<std::string> expected =
      with_cuda ? std::vector<std::string>{"sim", "cuda"} : std::vector<std::string>{"sim"};
  EXPECT_EQ(report.backends, expected);
  // The driver has applied the variable: its order is what the program sees.
  ASSERT_EQ(report.visible.gpus.size(), 2U);
  EXPECT_EQ(report.visible.gpus[0].pci_address, "0000:f1:00.0");
  EXPECT_FALSE(has(report.driver->report.remedy, "CUDA_VISIBLE_DEVICES"));
  const HostReport hidden = inspect({}, answering(topology::DriverAnswer{}, "1"));
  EXPECT_TRUE(has(hidden.driver->report.remedy, "CUDA_VISIBLE_DEVICES"));
  const HostReport none = inspect({}, answering(topology::DriverAnswer{}, {}));
  EXPECT_FALSE(has(none.driver->report.remedy, "CUDA_VISIBLE_DEVICES"));
  // Devices that the bus does not show are listed with what the driver tells.
  EXPECT_EQ(report.gpus.back().pci_address, "0000:f2:00.0");
  EXPECT_EQ(report.gpus.back().model, "second");
}

}  // namespace
}  // namespace outboard::inspect
