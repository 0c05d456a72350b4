// SPDX-License-Identifier: Apache-2.0
/// What every executor promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "exec/rig.hpp"
#include "outboard/error.hpp"

namespace outboard::exec {
namespace {

class Conformance : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Executors, Conformance, ::testing::ValuesIn(all_kinds()), name_of);

topology::Machine two_nodes() {
  return topology::synthetic("numa:2 core:2 pu:1");
}

/// Counts the calls of every part of every task.
struct PartCounts {
  static constexpr std::uint32_t kTasks = 200;
  static constexpr std::uint32_t kParts = 8;
  std::array<std::array<std::atomic<int>, kParts>, kTasks> body{};
  std::array<std::atomic<int>, kTasks> done{};
  std::atomic<std::size_t> finished = 0;

  static void run(void* context, std::uint64_t task, std::uint32_t part) noexcept {
    static_cast<PartCounts*>(context)->body[task][part] += 1;
  }
  static void end(void* context, std::uint64_t task) noexcept {
    auto& self = *static_cast<PartCounts*>(context);
    self.done[task] += 1;
    self.finished += 1;
  }
};

TEST_P(Conformance, EveryPartOfEveryTaskRunsOnce) {
  PartCounts counts;
  Rig rig(GetParam(), two_nodes(), 3);
  for (std::uint32_t i = 0; i < PartCounts::kTasks; ++i) {
    rig->post({.node = i % 2,
               .parts = 1 + i % PartCounts::kParts,
               .cost_elems = i,
               .body = PartCounts::run,
               .done = PartCounts::end,
               .context = &counts,
               .argument = i});
  }
  rig.until([&] { return counts.finished == PartCounts::kTasks; });
  for (std::size_t i = 0; i < PartCounts::kTasks; ++i) {
    EXPECT_EQ(counts.done[i], 1);
    for (std::size_t part = 0; part < PartCounts::kParts; ++part) {
      EXPECT_EQ(counts.body[i][part], part <= i % PartCounts::kParts ? 1 : 0);
    }
  }
}

/// Equal priorities: task k's parts, then its done, then task k + 1's.
struct Sequence {
  static constexpr std::uint32_t kParts = 5;
  std::atomic<std::uint64_t> finished = 0;
  std::atomic<std::uint32_t> parts = 0;
  std::atomic<int> wrong = 0;

  static void run(void* context, std::uint64_t task, std::uint32_t) noexcept {
    auto& self = *static_cast<Sequence*>(context);
    if (self.finished != task) self.wrong += 1;
    self.parts += 1;
  }
  static void end(void* context, std::uint64_t task) noexcept {
    auto& self = *static_cast<Sequence*>(context);
    if (self.finished != task || self.parts != kParts) self.wrong += 1;
    self.parts = 0;
    self.finished += 1;
  }
};

TEST_P(Conformance, DoneComesAfterAllPartsAndBeforeTheNextTask) {
  Sequence sequence;
  Rig rig(GetParam(), two_nodes(), 3);
  for (std::uint64_t i = 0; i < 500; ++i) {
    rig->post({.parts = Sequence::kParts,
               .cost_elems = 10,
               .body = Sequence::run,
               .done = Sequence::end,
               .context = &sequence,
               .argument = i});
  }
  rig.until([&] { return sequence.finished == 500; });
  EXPECT_EQ(sequence.wrong, 0);
}

/// One task posts the others from its body, so all of them wait behind a running one.
struct Crowd {
  Executor* executor = nullptr;
  std::vector<std::int64_t> priorities;
  std::vector<std::uint64_t> order;
  std::atomic<std::size_t> finished = 0;

  static void start(void* context, std::uint64_t, std::uint32_t) noexcept {
    auto& self = *static_cast<Crowd*>(context);
    for (std::uint64_t i = 0; i < self.priorities.size(); ++i) {
      self.executor->post({.priority = self.priorities[i],
                           .cost_elems = 100,
                           .body = nothing,
                           .done = end,
                           .context = context,
                           .argument = i});
    }
  }
  static void nothing(void*, std::uint64_t, std::uint32_t) noexcept {}
  static void end(void* context, std::uint64_t task) noexcept {
    auto& self = *static_cast<Crowd*>(context);
    self.order.push_back(task);
    self.finished += 1;
  }
};

TEST_P(Conformance, WaitingTasksRunByPriorityAndFirstComeAmongEquals) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Crowd crowd;
  for (int i = 0; i < 100; ++i) {
    crowd.priorities.push_back(static_cast<std::int64_t>(random() % 9) - 4);
  }
  Rig rig(GetParam(), two_nodes(), 2);
  crowd.executor = &*rig;
  rig->post({.priority = 1000, .body = Crowd::start, .context = &crowd});
  rig.until([&] { return crowd.finished == crowd.priorities.size(); });
  std::vector<std::uint64_t> expected(crowd.priorities.size());
  for (std::uint64_t i = 0; i < expected.size(); ++i) expected[i] = i;
  std::stable_sort(expected.begin(), expected.end(), [&](std::uint64_t left, std::uint64_t right) {
    return crowd.priorities[left] < crowd.priorities[right];
  });
  EXPECT_EQ(crowd.order, expected);
}

/// A chain over both nodes; every link is posted by the one before, from body and done in turns.
struct Chain {
  static constexpr std::uint64_t kLinks = 1000;
  Executor* executor = nullptr;
  std::atomic<std::uint64_t> reached = 0;

  void post_next(std::uint64_t link) noexcept {
    executor->post({.node = static_cast<std::uint32_t>(link % 2),
                    .cost_elems = 3,
                    .body = run,
                    .done = end,
                    .context = this,
                    .argument = link});
  }
  static void run(void* context, std::uint64_t link, std::uint32_t) noexcept {
    if (link % 3 == 0) static_cast<Chain*>(context)->post_next(link + 1);
  }
  static void end(void* context, std::uint64_t link) noexcept {
    auto& self = *static_cast<Chain*>(context);
    if (link % 3 != 0 && link + 1 < kLinks) self.post_next(link + 1);
    self.reached += 1;
  }
};

TEST_P(Conformance, BodiesAndDonesMayPost) {
  Chain chain;
  Rig rig(GetParam(), two_nodes(), 2);
  chain.executor = &*rig;
  chain.post_next(0);
  rig.until([&] { return chain.reached >= Chain::kLinks; });
  EXPECT_GE(chain.reached, Chain::kLinks);
}

TEST_P(Conformance, BusyTimeCountsOnlyWhereTasksRan) {
  Sequence sequence;
  Rig rig(GetParam(), two_nodes(), 1);
  EXPECT_EQ(rig->busy_ns(0), 0);
  rig->post({.node = 1,
             .parts = Sequence::kParts,
             .cost_elems = 1000,
             .body = Sequence::run,
             .done = Sequence::end,
             .context = &sequence});
  rig.until([&] { return sequence.finished == 1; });
  EXPECT_EQ(rig->busy_ns(0), 0);
  EXPECT_GT(rig->busy_ns(1), 0);
}

TEST_P(Conformance, KnowsItsNodesAndThreads) {
  Rig rig(GetParam(), two_nodes(), 3);
  EXPECT_EQ(rig->nodes(), 2u);
  EXPECT_EQ(rig->threads(0), 3u);
  EXPECT_EQ(rig->threads(1), 3u);
  EXPECT_EQ(rig->notes(), "");
  EXPECT_EQ(rig->binding_note(), "");
}

TEST_P(Conformance, ZeroThreadsAreRefused) {
  try {
    Rig rig(GetParam(), two_nodes(), 0);
    ADD_FAILURE() << "made an executor without threads";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("node 0"), std::string::npos);
  }
}

}  // namespace
}  // namespace outboard::exec
