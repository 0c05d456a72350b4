// SPDX-License-Identifier: Apache-2.0
/// A process may end at any moment with a live engine: the exit code is the intended one. This
/// binary starts itself again for each scenario.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

// Made before anything of the library in main(), so destroyed after whatever that registers.
std::unique_ptr<TinyTrainer> early_static;
// Reachable to the end, so that a leak checker knows it was meant.
TinyTrainer* leaked = nullptr;

TinyOptions model() {
  TinyOptions options;
  options.device.memory_bytes = std::size_t{4} << 20;
  options.config.bucket_bytes = 8192;
  options.parameters.resize(3);
  for (TinyParameter& parameter : options.parameters) parameter.elems = 20000;
  options.digest = false;
  options.max_steps = std::uint64_t{1} << 20;
  return options;
}

void work(TinyTrainer& trainer, std::uint64_t steps) {
  trainer.start();
  for (std::uint64_t i = 0; i < steps; ++i) trainer.step();
  trainer.forward();  // and leave updates and uploads of the last step behind
}

int exit_with_a_static_engine() {
  early_static = std::make_unique<TinyTrainer>(model());
  work(*early_static, 3);
  return 3;
}

int exit_with_a_late_static_engine() {
  static TinyTrainer late(model());  // its destructor runs first
  work(late, 3);
  return 4;
}

int exit_with_a_leaked_engine() {
  leaked = new TinyTrainer(model());
  work(*leaked, 3);
  return 5;
}

int exit_while_another_thread_steps() {
  static std::atomic<std::uint64_t> steps{0};
  leaked = new TinyTrainer(model());
  std::thread([] {
    work(*leaked, 1);
    for (;;) {
      leaked->step();
      ++steps;
    }
  }).detach();
  while (steps < 5) std::this_thread::yield();
  // What runs at exit does not stop that thread.
  std::exit(6);
}

int leave_main_by_an_exception() {
  TinyTrainer trainer(model());
  work(trainer, 2);
  throw std::runtime_error("intended");
}

int catch_in_main() {
  try {
    leave_main_by_an_exception();
  } catch (const std::runtime_error&) {
    return 7;
  }
  return 0;
}

int end_by_a_signal() {
  TinyTrainer trainer(model());
  work(trainer, 2);
  raise(SIGTERM);
  return 0;
}

int end_at_once() {
  TinyTrainer trainer(model());
  work(trainer, 2);
  _exit(8);
}

const std::map<std::string, int (*)()> kScenarios = {
    {"static", exit_with_a_static_engine},
    {"late_static", exit_with_a_late_static_engine},
    {"leaked", exit_with_a_leaked_engine},
    {"stepping", exit_while_another_thread_steps},
    {"exception", leave_main_by_an_exception},
    {"caught", catch_in_main},
    {"signal", end_by_a_signal},
    {"at_once", end_at_once},
};

/// The wait status of this binary running a scenario; ended by SIGALRM if it hangs.
int run_child(const std::string& scenario) {
  std::string program = "/proc/self/exe";
  std::string argument = "--scenario=" + scenario;
  char* const argv[] = {program.data(), argument.data(), nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, program.c_str(), nullptr, nullptr, argv, environ) != 0) return -1;
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

std::string describe(int status) {
  if (WIFEXITED(status)) return "exit code " + std::to_string(WEXITSTATUS(status));
  if (WIFSIGNALED(status)) return std::string("signal ") + strsignal(WTERMSIG(status));
  return "status " + std::to_string(status);
}

struct Ending {
  const char* scenario;
  const char* expected;
};

class Exit : public ::testing::TestWithParam<Ending> {};

TEST_P(Exit, IsClean) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(describe(run_child(GetParam().scenario)), GetParam().expected) << "run " << i;
  }
}
INSTANTIATE_TEST_SUITE_P(
    Moments, Exit,
    ::testing::Values(Ending{"static", "exit code 3"}, Ending{"late_static", "exit code 4"},
                      Ending{"leaked", "exit code 5"}, Ending{"stepping", "exit code 6"},
                      Ending{"caught", "exit code 7"}, Ending{"at_once", "exit code 8"},
                      Ending{"exception", "signal Aborted"}, Ending{"signal", "signal Terminated"}),
    [](const auto& test) { return std::string(test.param.scenario); });

}  // namespace
}  // namespace outboard::testing

int main(int argc, char** argv) {
  constexpr std::string_view kPrefix = "--scenario=";
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first.starts_with(kPrefix)) {
    alarm(60);  // a hang ends as a signal, not as a test that never returns
    return outboard::testing::kScenarios.at(std::string(first.substr(kPrefix.size())))();
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
