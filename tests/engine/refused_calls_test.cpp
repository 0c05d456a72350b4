// SPDX-License-Identifier: Apache-2.0
/// A container that forbids memory policies, or binding threads too: training goes on with the same
/// bits, and one warning says what was refused. This binary starts itself again for each scenario.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "../examples/process.hpp"
#include "numa/page_placement.hpp"
#include "support/may_skip.hpp"
#include "support/refused_calls.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSteps = 10;
constexpr int kNoFilters = 77;

TinyOptions model() {
  TinyOptions options;
  options.device.memory_bytes = std::size_t{16} << 20;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.bucket_bytes = std::size_t{64} << 10;
  options.config.log = [](LogLevel level, std::string_view line) {
    std::printf("%s%s\n", level == LogLevel::info ? "" : "warning: ", std::string(line).c_str());
  };
  for (const std::uint64_t elems : {400'000U, 7U, 200'000U, 50'000U}) {
    options.parameters.emplace_back();
    options.parameters.back().elems = elems;
  }
  options.digest = false;
  return options;
}

/// Prints the log, how many threads may run on one cpu only, and the digest at the end.
int train() {
  TinyTrainer trainer(model());
  trainer.start();
  trainer.run(kSteps);
  const auto threads = numa_test::other_threads();
  const auto bound = std::ranges::count_if(
      threads, [](const numa_test::ThreadPlace& thread) { return thread.allowed.size() == 1; });
  std::printf("bound threads: %td\ndigest: %llx\n", bound,
              static_cast<unsigned long long>(trainer.engine().state_digest()));
  return 0;
}

int run_scenario(const std::string& refused, int error) {
  std::vector<long> calls;
  if (refused != "nothing") {
    calls.assign(std::begin(kMemoryPolicyCalls), std::end(kMemoryPolicyCalls));
  }
  if (refused == "memory-and-cpus") calls.push_back(SYS_sched_setaffinity);
  if (!calls.empty() && !refuse_calls(calls, error)) {
    std::printf("%s\n", std::generic_category().message(errno).c_str());
    return kNoFilters;
  }
  return train();
}

struct Seen {
  int exit_code = -1;
  std::string text;
  std::vector<std::string> warnings;
  std::string bound, digest;
};

Seen start(const std::string& refused, int error, const std::string& machine) {
  text::test::Command command;
  command.arguments = {std::filesystem::read_symlink("/proc/self/exe"), "--refuse=" + refused,
                       std::to_string(error)};
  // hwloc's own words for a machine of that shape which is to be taken for this one.
  if (!machine.empty()) command.environment = {"HWLOC_SYNTHETIC=" + machine, "HWLOC_THISSYSTEM=1"};
  const text::test::Finished finished = text::test::run(command);
  Seen seen;
  seen.exit_code = finished.exit_code;
  seen.text = finished.out + finished.err;
  std::istringstream lines(finished.out);
  for (std::string line; std::getline(lines, line);) {
    const auto value = [&](std::string_view key) { return line.substr(key.size()); };
    if (line.starts_with("warning: ")) seen.warnings.push_back(line);
    if (line.starts_with("bound threads: ")) seen.bound = value("bound threads: ");
    if (line.starts_with("digest: ")) seen.digest = value("digest: ");
  }
  return seen;
}

struct Case {
  const char* refused;
  int error;
};

class RefusedCalls : public ::testing::TestWithParam<Case> {
 protected:
  static Seen trains(const std::string& machine) {
    const Seen free = start("nothing", 0, machine);
    Seen seen = start(GetParam().refused, GetParam().error, machine);
    if (seen.exit_code == kNoFilters) return seen;
    EXPECT_EQ(free.exit_code, 0) << free.text;
    EXPECT_EQ(seen.exit_code, 0) << seen.text;
    EXPECT_FALSE(free.digest.empty());
    EXPECT_EQ(seen.digest, free.digest);
    return seen;
  }
  static bool cpus_refused() { return std::string_view(GetParam().refused) == "memory-and-cpus"; }
  static std::string error_words() { return "(errno " + std::to_string(GetParam().error) + ")"; }
};
INSTANTIATE_TEST_SUITE_P(Ways, RefusedCalls,
                         ::testing::Values(Case{"memory", EPERM}, Case{"memory", ENOSYS},
                                           Case{"memory-and-cpus", EPERM},
                                           Case{"memory-and-cpus", ENOSYS}),
                         [](const auto& test) {
                           std::string name = test.param.refused;
                           std::ranges::replace(name, '-', '_');
                           return name + (test.param.error == EPERM ? "_eperm" : "_enosys");
                         });

TEST_P(RefusedCalls, AreOneWarningOnAMachineOfTwoNodes) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one cpu: not for two nodes";
  const Seen seen = trains("numa:2 core:1 pu:1");
  if (seen.exit_code == kNoFilters) OUTBOARD_SKIP("no system call filters: " << seen.text);
  ASSERT_EQ(seen.warnings.size(), 1U) << seen.text;
  std::vector<std::string> words = {"memory: mbind: ", error_words(), "docker: --cap-add SYS_NICE"};
  if (cpus_refused()) {
    words.insert(words.end(), {"workers of node 0, 1: sched_setaffinity: ", "--security-opt"});
  }
  for (const std::string& word : words) {
    EXPECT_NE(seen.warnings[0].find(word), std::string::npos) << word << "\n" << seen.warnings[0];
  }
  // Large enough to try how fast each node is.
  EXPECT_NE(seen.text.find("measured update rates"), std::string::npos) << seen.text;
  EXPECT_EQ(seen.bound, cpus_refused() ? "0" : "2") << "binding is kept where it is allowed";
}

/// Where there is one node no memory is bound, so that nothing is missing.
TEST_P(RefusedCalls, CostNothingOnAMachineOfOneNode) {
  const Seen seen = trains("core:2 pu:1");
  if (seen.exit_code == kNoFilters) OUTBOARD_SKIP("no system call filters: " << seen.text);
  ASSERT_EQ(seen.warnings.size(), cpus_refused() ? 1U : 0U) << seen.text;
  if (!cpus_refused()) return;
  EXPECT_EQ(seen.warnings[0].find("memory:"), std::string::npos) << seen.warnings[0];
  EXPECT_NE(seen.warnings[0].find("sched_setaffinity: "), std::string::npos) << seen.warnings[0];
  EXPECT_NE(seen.warnings[0].find(error_words()), std::string::npos) << seen.warnings[0];
}

}  // namespace
}  // namespace outboard::testing

int main(int argc, char** argv) {
  constexpr std::string_view kPrefix = "--refuse=";
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first.starts_with(kPrefix) && argc > 2) {
    alarm(60);  // a hang ends as a signal, not as a test that never returns
    return outboard::testing::run_scenario(std::string(first.substr(kPrefix.size())),
                                           std::stoi(argv[2]));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
