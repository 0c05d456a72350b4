// SPDX-License-Identifier: Apache-2.0
// The planner against every placement there is, on models small enough to try them all; what it
// promises at any size.
#include "plan/planner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "outboard/error.hpp"
#include "plan/random_steps.hpp"
#include "plan/simulation.hpp"

namespace outboard::plan {
namespace {

using testing::Draw;
using testing::draw_step;
using testing::RandomStep;
using testing::Shape;

std::uint64_t state_bytes(const ModelLayout& layout) {
  std::uint64_t bytes = 0;
  for (const Bucket& bucket : layout.buckets) bytes += bucket.padded_elems * kStateBytesPerElem;
  return bytes;
}

/// At most 8 buckets, and a budget from nothing to everything.
struct SmallCase {
  RandomStep step;
  DeviceMemory memory;
  StepSchedule schedule = StepSchedule::exact;
};

SmallCase small_case(std::uint64_t seed) {
  Draw draw(seed);
  SmallCase out;
  const Shape shape = testing::kShapes[seed % 4];  // many tiny ones make one bucket
  const std::size_t parameters = 2 + draw.below(5);
  for (std::uint64_t bucket_elems = 65536;; bucket_elems *= 2) {
    out.step = draw_step(seed, shape, parameters, bucket_elems);
    if (out.step.layout.buckets.size() <= 7) break;
  }
  const double share = draw.between(-0.2, 1.2);
  out.memory.budget_bytes = static_cast<std::uint64_t>(
      std::max(0.0, share) * static_cast<double>(state_bytes(out.step.layout)));
  if (draw.below(4) == 0) out.schedule = StepSchedule::open;
  return out;
}

/// The fastest of all homes of all buckets on their nodes by rate, within the budget.
double exhaustive(const SmallCase& c) {
  const StepModel model = make_step_model(c.step.layout, c.step.times);
  Simulation simulation(model, c.step.rates, c.schedule);
  double best = std::numeric_limits<double>::infinity();
  std::uint64_t combinations = 1;
  for (std::size_t b = 0; b < model.buckets.size(); ++b) combinations *= kHomes;
  std::vector<BucketPlace> places = c.step.places;
  for (std::uint64_t code = 0; code < combinations; ++code) {
    std::uint64_t rest = code;
    for (BucketPlace& place : places) {
      place.home = static_cast<Home>(rest % kHomes);
      rest /= kHomes;
    }
    if (device_state_bytes(model, places) > c.memory.budget_bytes) continue;
    place_on_nodes(model, c.step.rates, places);
    best = std::min(best, simulation.run(places).step_us);
  }
  return best;
}

TEST(Planner, IsWithinFivePercentOfTheBestPlacement) {
  std::vector<double> ratios;
  std::size_t moved = 0;
  for (std::uint64_t seed = 0; seed < 1200; ++seed) {
    const SmallCase c = small_case(seed);
    const Plan found = plan(c.step.layout, c.step.rates, c.step.times, c.memory,
                            {.kind = PolicyKind::automatic, .schedule = c.schedule});
    ratios.push_back(found.step_us / exhaustive(c));
    EXPECT_LE(ratios.back(), 1.05)
        << "seed " << seed << ", " << c.step.layout.buckets.size() << " buckets";
    if (found.device_bytes > 0) ++moved;
  }
  std::ranges::sort(ratios);
  std::printf(
      "%zu cases, %zu with buckets moved; found / best: median %.4f, p99 %.4f, worst %.4f\n",
      ratios.size(), moved, ratios[ratios.size() / 2], ratios[ratios.size() * 99 / 100],
      ratios.back());
  EXPECT_GE(moved, ratios.size() / 4);
}

RandomStep random_step(std::uint64_t seed) {
  Draw draw(seed + 4242);
  const Shape shape = testing::kShapes[seed % testing::kShapes.size()];
  return draw_step(seed, shape, testing::draw_count(draw, shape),
                   std::uint64_t{8192} << draw.below(4));
}

TEST(Planner, KeepsTheBudgetAndNeverLosesToTheHost) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomStep step = random_step(seed);
    Draw draw(seed);
    const DeviceMemory memory{draw.below(state_bytes(step.layout) * 5 / 4)};
    const Policy policy{.streaming = seed % 3 != 0};
    const Plan found = plan(step.layout, step.rates, step.times, memory, policy);
    EXPECT_LE(found.device_bytes, memory.budget_bytes);
    EXPECT_LE(found.step_us, found.host_only_step_us);
    if (!policy.streaming) {
      EXPECT_EQ(found.streamed_elems, 0u);
    }
    const StepModel model = make_step_model(step.layout, step.times);
    EXPECT_EQ(found.device_bytes, device_state_bytes(model, found.buckets));
    EXPECT_EQ(found.step_us,
              simulate(model, step.rates, found.buckets, StepSchedule::exact).step_us);
    EXPECT_EQ(plan(step.layout, step.rates, step.times, memory, policy), found) << "not pure";
    const Plan host = plan(step.layout, step.rates, step.times, {}, {PolicyKind::host_only});
    EXPECT_EQ(host.step_us, found.host_only_step_us);
    EXPECT_EQ(host.device_bytes, 0u);
  }
}

TEST(Planner, ATiedEmbeddingIsTheFirstToStayOnTheDevice) {
  // Needed first, arriving last: its update alone stands between backward and forward.
  std::vector<std::uint64_t> elems = {409600};
  StepTimes times;
  times.forward.push_back({10, 0});
  for (std::uint32_t layer = 1; layer <= 20; ++layer) {
    elems.push_back(204800);
    times.forward.push_back({300, layer});
    times.backward.insert(times.backward.begin(), {600, layer});
  }
  times.forward.push_back({300, 0});
  times.backward.insert(times.backward.begin(), {600, 0});
  times.backward.push_back({10, 0});
  const Rates rates{.link_down_bytes_per_s = 4e9,
                    .link_up_bytes_per_s = 4e9,
                    .node_elems_per_s = {1e9},
                    .device_elems_per_s = 50e9};
  const ModelLayout layout = testing::layout_of(elems, 102400, rates.node_elems_per_s);
  const std::uint64_t embedding_bytes = elems[0] * kStateBytesPerElem;
  const Plan found =
      plan(layout, rates, times, {embedding_bytes + embedding_bytes / 10}, {.streaming = false});
  for (const Segment& segment : layout.segments) {
    if (segment.parameter != 0) continue;
    EXPECT_EQ(found.buckets[segment.bucket].home, Home::device_resident);
  }
  EXPECT_LT(found.step_us, found.host_only_step_us);
}

TEST(Planner, HonoursAFractionWithinTwoPercent) {
  // One tensor of 100 MB in 16 bits and ten small ones.
  std::vector<std::uint64_t> elems = {50'000'000};
  for (std::uint64_t i = 0; i < 10; ++i) elems.push_back(1000 + 700 * i);
  StepTimes times;
  for (std::uint32_t i = 0; i < elems.size(); ++i) times.forward.push_back({1, i});
  times.backward.assign(times.forward.rbegin(), times.forward.rend());
  const Rates rates{.node_elems_per_s = {1e9, 2e9}};
  const ModelLayout layout = testing::layout_of(elems, 2'097'152, rates.node_elems_per_s);
  const auto total = static_cast<double>(state_bytes(layout));
  for (int tenth = 0; tenth <= 10; ++tenth) {
    const double fraction = tenth / 10.0;
    const Plan found = plan(layout, rates, times, {UINT64_MAX},
                            {.kind = PolicyKind::fraction, .device_fraction = fraction});
    const auto resident = static_cast<double>(found.resident_elems * kStateBytesPerElem);
    EXPECT_NEAR(resident / total, fraction, 0.02);
    EXPECT_EQ(found.device_bytes, found.resident_elems * kStateBytesPerElem);
    if (tenth == 0 || tenth == 10) {
      EXPECT_EQ(resident, fraction * total);
    }
  }
}

TEST(Planner, FractionsOfRandomModelsAreHonouredOrRefusedByName) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomStep step = random_step(seed);
    const double fraction = Draw(seed).between(0.0, 1.0);
    const Policy policy{.kind = PolicyKind::fraction, .device_fraction = fraction};
    const auto total = static_cast<double>(state_bytes(step.layout));
    std::uint64_t largest = 0;
    for (const Bucket& bucket : step.layout.buckets) {
      largest = std::max(largest, bucket.padded_elems * kStateBytesPerElem);
    }
    try {
      const Plan found = plan(step.layout, step.rates, step.times, {UINT64_MAX}, policy);
      EXPECT_NEAR(static_cast<double>(found.resident_elems * kStateBytesPerElem) / total, fraction,
                  0.02);
    } catch (const Error& refused) {
      EXPECT_EQ(refused.code(), ErrorCode::invalid_config);
      EXPECT_GT(static_cast<double>(largest), 0.04 * total) << "half a bucket was near enough";
    }
  }
}

TEST(Planner, SaysWhatItRefuses) {
  const RandomStep step = random_step(4);
  const auto code = [&](const Rates& rates, const DeviceMemory& memory, const Policy& policy) {
    try {
      (void)plan(step.layout, rates, step.times, memory, policy);
    } catch (const Error& refused) {
      return refused.code();
    }
    return ErrorCode::deadlock;
  };
  Rates rates = step.rates;
  rates.link_up_bytes_per_s = -1.0;
  EXPECT_EQ(code(rates, {}, {}), ErrorCode::invalid_argument);
  rates = step.rates;
  rates.node_elems_per_s.clear();
  EXPECT_EQ(code(rates, {}, {}), ErrorCode::invalid_argument);
  EXPECT_EQ(code(step.rates, {}, {.kind = PolicyKind::fraction, .device_fraction = 1.5}),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code(step.rates, {}, {.kind = PolicyKind::fraction, .device_fraction = 1.0}),
            ErrorCode::out_of_memory);
}

/// Time is printed; what is asserted is the amount of work.
TEST(Planner, WorkDoesNotGrowWithTheModel) {
  for (const std::size_t buckets : {8u, 64u, 1000u, 10'000u}) {
    const RandomStep step = draw_step(3, Shape::even, buckets, 65536);
    ASSERT_EQ(step.layout.buckets.size(), buckets);
    const DeviceMemory memory{state_bytes(step.layout) / 3};
    const Plan found = plan(step.layout, step.rates, step.times, memory, {});
    std::printf("%6zu buckets: %7llu events, step %.0f us, host only %.0f us\n", buckets,
                static_cast<unsigned long long>(found.simulated_events), found.step_us,
                found.host_only_step_us);
    // The search, and whole steps of six events for each bucket: three, and two of three rounds.
    EXPECT_LE(found.simulated_events, 260'000u + 54 * buckets);
  }
}

/// As the engine plans: nothing is streamed.
TEST(Planner, WorkDoesNotGrowWithTheMicroBatchesEither) {
  for (const std::uint32_t micro_batches : {0u, 1u, 2u, 4u, 64u, 1000u}) {
    RandomStep step = draw_step(3, Shape::even, 10'000, 65536);
    if (micro_batches > 0) step = testing::with_sums(step, micro_batches);
    DeviceMemory memory{state_bytes(step.layout) / 3};
    if (micro_batches > 0) memory.state_bytes_per_elem += sizeof(float);
    const Plan found = plan(step.layout, step.rates, step.times, memory, {.streaming = false});
    std::printf("%4u micro-batches: %7llu events, step %.0f us, host only %.0f us\n", micro_batches,
                static_cast<unsigned long long>(found.simulated_events), found.step_us,
                found.host_only_step_us);
    EXPECT_LE(found.step_us, found.host_only_step_us);
    // Three whole steps: update, upload and forward, and of two micro-batches backward, a copy and
    // an addition for each bucket.
    EXPECT_LE(found.simulated_events, 260'000u + 3 * 9 * 10'001u);
  }
}

TEST(Planner, CountsTheSumsOfResidentState) {
  RandomStep step = testing::with_sums(random_step(7), 4);
  const std::uint64_t all = state_bytes(step.layout) / kStateBytesPerElem * 16;
  for (const Policy& policy :
       {Policy{.streaming = false}, Policy{.kind = PolicyKind::fraction, .device_fraction = 1.0}}) {
    const Plan found = plan(step.layout, step.rates, step.times, {all, 16}, policy);
    EXPECT_EQ(found.device_bytes, found.resident_elems * 16);
  }
  const auto one_short = [&] {
    (void)plan(step.layout, step.rates, step.times, {all - 1, 16},
               {.kind = PolicyKind::fraction, .device_fraction = 1.0});
  };
  EXPECT_THROW(one_short(), Error);
}

}  // namespace
}  // namespace outboard::plan
