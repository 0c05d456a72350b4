// SPDX-License-Identifier: Apache-2.0
/// How many threads update, and which: what launchers, affinity and the configuration say of it.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

TinyOptions model() {
  TinyOptions options;
  options.device.memory_bytes = std::size_t{1} << 20;
  options.config.bucket_bytes = 8192;
  options.config.host.reserve_cores = 0;
  options.parameters.resize(2);
  for (TinyParameter& parameter : options.parameters) parameter.elems = 30'000;
  options.digest = false;
  return options;
}

/// The line of describe() that states the threads.
std::string threads_line(const TinyOptions& options) {
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(2);
  const std::string text = trainer.engine().describe();
  const std::size_t at = text.find("threads: ");
  if (at == std::string::npos) return text;
  return text.substr(at, text.find('\n', at) - at);
}

cpu_set_t own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

/// Only the last of the cpus that this thread may use.
cpu_set_t last_cpu() {
  const cpu_set_t allowed = own_cpus();
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t cpu = CPU_SETSIZE; cpu-- > 0;) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    CPU_SET(cpu, &one);
    break;
  }
  return one;
}

TEST(HostThreads, ALaunchersDefaultDoesNotThrottle) {
  unsetenv("OMP_NUM_THREADS");
  const std::string without = threads_line(model());
  setenv("OMP_NUM_THREADS", "1", 1);
  EXPECT_EQ(threads_line(model()), without);
  unsetenv("OMP_NUM_THREADS");
  EXPECT_NE(without.find("allowed physical cores"), std::string::npos) << without;
}

TEST(HostThreads, ThoseConfiguredWin) {
  TinyOptions options = model();
  options.config.host.threads_per_node = 4;
  options.config.host.synthetic_topology = "core:2 pu:1";
  EXPECT_EQ(threads_line(options), "threads: 4 threads: as configured");
}

TEST(HostThreads, StayWithinTheAffinityOfTheThreadThatMakesTheEngine) {
  std::thread([] {
    const cpu_set_t one = last_cpu();
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(threads_line(model()), "threads: 1 thread: 1 allowed physical cores");
  }).join();
}

TEST(HostThreads, BindNobodyWhoOnlyCallsIn) {
  TinyTrainer trainer(model());
  const cpu_set_t before = own_cpus();
  trainer.start();
  trainer.step();
  std::thread([&] {
    const cpu_set_t one = last_cpu();
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    trainer.step();
    trainer.engine().synchronize();
    const cpu_set_t after = own_cpus();
    EXPECT_TRUE(CPU_EQUAL(&one, &after));
    trainer.stop();
    const cpu_set_t at_the_end = own_cpus();
    EXPECT_TRUE(CPU_EQUAL(&one, &at_the_end));
  }).join();
  const cpu_set_t after = own_cpus();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace outboard::testing
