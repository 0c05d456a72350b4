// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>

#include <thread>

#include "topology/affinity.hpp"
#include "topology/machine.hpp"

namespace outboard::topology {
namespace {

int cpus_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return CPU_COUNT(&set);
}

Machine one_real_cpu() {
  Machine machine = discover();
  machine.nodes.resize(1);
  machine.nodes[0].cpus.resize(1);
  return machine;
}

TEST(BindThisThread, BindsToTheNodesCpusUntilTheAffinityIsRestored) {
  std::thread([] {
    const int before = cpus_of_this_thread();
    {
      const SavedAffinity saved;
      EXPECT_EQ(bind_this_thread(one_real_cpu(), 0), "");
      EXPECT_EQ(cpus_of_this_thread(), 1);
    }
    EXPECT_EQ(cpus_of_this_thread(), before);
  }).join();
}

TEST(BindThisThread, LeavesTheThreadAloneOnAMadeUpMachine) {
  const int before = cpus_of_this_thread();
  EXPECT_EQ(bind_this_thread(synthetic("numa:2 core:1 pu:1"), 1), "");
  EXPECT_EQ(cpus_of_this_thread(), before);
}

TEST(BindThisThread, RefusalNamesCallAndErrno) {
  std::thread([] {
    Machine machine = discover();
    machine.nodes[0].cpus = {100000};  // no such cpu
    const std::string why = bind_this_thread(machine, 0);
    EXPECT_NE(why.find("sched_setaffinity"), std::string::npos) << why;
    EXPECT_NE(why.find("errno 22"), std::string::npos) << why;
  }).join();
}

TEST(BindMemory, TouchedPagesStayUsable) {
  const std::size_t bytes = 1 << 16;
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(address, MAP_FAILED);
  const std::span<std::byte> memory(static_cast<std::byte*>(address), bytes);
  const Machine machine = discover();
  const std::string why = bind_memory_to(machine, machine.nodes[0].os_index, memory);
  if (!why.empty()) {  // a container may refuse; then it says which call and why
    EXPECT_NE(why.find("mbind"), std::string::npos) << why;
    EXPECT_NE(why.find("errno"), std::string::npos) << why;
  }
  memory.back() = std::byte{7};
  EXPECT_EQ(memory.back(), std::byte{7});
  EXPECT_EQ(munmap(address, bytes), 0);
}

TEST(BindMemory, NothingHappensOnAMadeUpMachine) {
  std::byte unaligned[3] = {};
  EXPECT_EQ(bind_memory_to(synthetic("numa:2 core:1 pu:1"), 1, unaligned), "");
}

}  // namespace
}  // namespace outboard::topology
