// SPDX-License-Identifier: Apache-2.0
/// What only threads can show: who runs what, at the same time, until when.
#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "exec/rig.hpp"

namespace outboard::exec {
namespace {

class RealThreads : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Executors, RealThreads, ::testing::ValuesIn(real_kinds()), name_of);

topology::Machine two_nodes() {
  return topology::synthetic("numa:2 core:2 pu:1");
}

struct Counter {
  std::atomic<int> finished = 0;
  static void run(void*, std::uint64_t, std::uint32_t) noexcept {}
  static void end(void* context, std::uint64_t) noexcept {
    static_cast<Counter*>(context)->finished += 1;
  }
};

/// Every part of both nodes' tasks waits for all the others: passes only if all threads are there.
struct Rendezvous {
  std::atomic<int> present = 0;
  std::atomic<int> finished = 0;
  static constexpr int kAll = 4;
  static void run(void* context, std::uint64_t, std::uint32_t) noexcept {
    auto& self = *static_cast<Rendezvous*>(context);
    self.present += 1;
    while (self.present < kAll) std::this_thread::yield();
  }
  static void end(void* context, std::uint64_t) noexcept {
    static_cast<Rendezvous*>(context)->finished += 1;
  }
};

TEST_P(RealThreads, NodesAndTheirThreadsRunSideBySide) {
  Rendezvous rendezvous;
  Rig rig(GetParam(), two_nodes(), 2);
  for (std::uint32_t node = 0; node < 2; ++node) {
    rig->post({.node = node,
               .parts = 2,
               .body = Rendezvous::run,
               .done = Rendezvous::end,
               .context = &rendezvous});
  }
  rig.until([&] { return rendezvous.finished == 2; });
  EXPECT_EQ(rendezvous.present, Rendezvous::kAll);
}

TEST_P(RealThreads, TwoExecutorsHaveTheirOwnThreads) {
  Rendezvous rendezvous;
  Rig first(GetParam(), topology::synthetic("core:2 pu:1"), 2);
  Rig second(GetParam(), topology::synthetic("core:2 pu:1"), 2);
  for (Rig* rig : {&first, &second}) {
    (*rig)->post(
        {.parts = 2, .body = Rendezvous::run, .done = Rendezvous::end, .context = &rendezvous});
  }
  first.until([&] { return rendezvous.finished == 2; });
  EXPECT_EQ(rendezvous.present, Rendezvous::kAll);
}

TEST_P(RealThreads, ManyThreadsPostAtOnce) {
  constexpr int kPosters = 8;
  constexpr int kEach = 500;
  Counter counter;
  Rig rig(GetParam(), two_nodes(), 2);
  {
    std::vector<std::jthread> posters;
    for (int poster = 0; poster < kPosters; ++poster) {
      posters.emplace_back([&, poster] {
        for (int i = 0; i < kEach; ++i) {
          rig->post({.node = static_cast<std::uint32_t>(i % 2),
                     .priority = i % 5,
                     .parts = 1 + static_cast<std::uint32_t>(poster % 3),
                     .body = Counter::run,
                     .done = Counter::end,
                     .context = &counter});
        }
      });
    }
  }
  rig.until([&] { return counter.finished == kPosters * kEach; });
  EXPECT_EQ(counter.finished, kPosters * kEach);
}

/// A task that posts its successor from done, so that work appears while the destructor waits.
struct Tail {
  Executor* executor = nullptr;
  std::atomic<int> left = 200;
  static void run(void*, std::uint64_t, std::uint32_t) noexcept { std::this_thread::yield(); }
  static void end(void* context, std::uint64_t) noexcept {
    auto& self = *static_cast<Tail*>(context);
    if (--self.left > 0) self.post();
  }
  void post() noexcept { executor->post({.parts = 2, .body = run, .done = end, .context = this}); }
};

TEST_P(RealThreads, DestructorWaitsForEveryTaskAlsoForThosePostedMeanwhile) {
  Counter counter;
  Tail tail;
  {
    Rig rig(GetParam(), two_nodes(), 2);
    tail.executor = &*rig;
    tail.post();
    for (std::uint32_t i = 0; i < 300; ++i) {
      rig->post(
          {.node = 1, .parts = 3, .body = Tail::run, .done = Counter::end, .context = &counter});
    }
    rig.destroy();
    EXPECT_EQ(counter.finished, 300);
    EXPECT_EQ(tail.left, 0);
  }
}

struct WhoRan {
  static constexpr std::uint32_t kThreads = 3;
  std::array<std::set<std::thread::id>, kThreads> of_part;  // each part writes its own
  std::atomic<int> finished = 0;
  static void run(void* context, std::uint64_t, std::uint32_t part) noexcept {
    static_cast<WhoRan*>(context)->of_part[part].insert(std::this_thread::get_id());
  }
  static void end(void* context, std::uint64_t) noexcept {
    static_cast<WhoRan*>(context)->finished += 1;
  }
};

TEST_P(RealThreads, PartGoesToTheSameThreadEveryTime) {
  WhoRan who;
  Rig rig(GetParam(), two_nodes(), WhoRan::kThreads);
  for (int round = 1; round <= 50; ++round) {  // with pauses, in which workers could change
    for (int i = 0; i < 4; ++i) {
      rig->post(
          {.parts = WhoRan::kThreads, .body = WhoRan::run, .done = WhoRan::end, .context = &who});
    }
    rig.until([&] { return who.finished == 4 * round; });
  }
  std::set<std::thread::id> all;
  for (const auto& threads : who.of_part) {
    EXPECT_EQ(threads.size(), 1u);
    all.insert(threads.begin(), threads.end());
  }
  EXPECT_EQ(all.size(), WhoRan::kThreads);
  EXPECT_FALSE(all.contains(std::this_thread::get_id()));
}

struct Affinity {
  std::atomic<int> wrong = 0;
  std::atomic<int> finished = 0;
  std::uint32_t cpu = 0;
  static void run(void* context, std::uint64_t, std::uint32_t) noexcept {
    auto& self = *static_cast<Affinity*>(context);
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) != 1 ||
        !CPU_ISSET(self.cpu, &set)) {
      self.wrong += 1;
    }
  }
  static void end(void* context, std::uint64_t) noexcept {
    static_cast<Affinity*>(context)->finished += 1;
  }
};

TEST_P(RealThreads, WorkersAreBoundToTheirNodeAndTheCallerIsNot) {
  topology::Machine machine = topology::discover();
  machine.nodes.resize(1);
  machine.nodes[0].cpus = {machine.nodes[0].cpus.back()};
  Affinity affinity;
  affinity.cpu = machine.nodes[0].cpus[0];
  cpu_set_t before;
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  Rig rig(GetParam(), machine, 2);
  for (int i = 0; i < 10; ++i) {
    rig->post({.parts = 2, .body = Affinity::run, .done = Affinity::end, .context = &affinity});
  }
  rig.until([&] { return affinity.finished == 10; });
  EXPECT_EQ(affinity.wrong, 0);
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  EXPECT_EQ(rig->notes(), "");
  EXPECT_EQ(rig->binding_note(), "");
}

TEST_P(RealThreads, RefusedBindingIsNotedAndTasksRun) {
  topology::Machine machine = topology::discover();
  machine.nodes.resize(1);
  machine.nodes[0].cpus = {100000};  // no such cpu
  Counter counter;
  Rig rig(GetParam(), machine, 2);
  rig->post({.parts = 2, .body = Counter::run, .done = Counter::end, .context = &counter});
  rig.until([&] { return counter.finished == 1; });
  const std::string note = rig->binding_note();
  EXPECT_NE(note.find("node 0: sched_setaffinity: "), std::string::npos) << note;
}

}  // namespace
}  // namespace outboard::exec
