// SPDX-License-Identifier: Apache-2.0
// An engine destroyed at any moment of any way to run, over random speeds, delays and orders:
// nothing of it stays on the device, and the weights are those of the last step that was taken.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/drawn_ways.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSeeds = 1200;
constexpr std::uint64_t kMostSteps = 4;

using Weights = std::vector<std::vector<std::uint16_t>>;  // by parameter

Weights weights_of(TinyTrainer& trainer) {
  Weights out;
  for (std::uint32_t i = 0; i < trainer.options().parameters.size(); ++i) {
    const auto elems = static_cast<std::size_t>(trainer.options().parameters[i].elems);
    out.push_back(
        download<std::uint16_t>(trainer.gpu(), trainer.weight(i), elems, trainer.reader()));
  }
  return out;
}

/// By the number of steps, from none to one more than any run takes.
std::vector<Weights> reference_of(const WayModel& model) {
  TinyTrainer trainer(way_options(model));
  trainer.start();
  std::vector<Weights> out = {weights_of(trainer)};
  while (trainer.steps() <= kMostSteps) {
    const TinyStep step = trainer.step();
    EXPECT_EQ(step.result.applied(), trainer.steps() != kWayOverflow + 1);
    trainer.engine().synchronize();
    out.push_back(weights_of(trainer));
  }
  return out;
}

/// Where in a step the engine ends.
enum class End : std::uint8_t {
  after_step,
  in_forward,
  in_backward,
  after_backward,  ///< of the first pass: sums lack the second
  in_last_pass,
  after_discard,
  after_move,
};
constexpr std::array<const char*, 7> kEnds = {
    "after a step",       "in forward",      "in backward", "after a first backward",
    "in a last backward", "after discard()", "after a move"};

void give_some(TinyTrainer& trainer, std::uint32_t least) {
  for (auto i = static_cast<std::uint32_t>(trainer.in_use()); i-- > least;) {
    if (trainer.options().has_gradient(trainer.steps(), i)) trainer.give_gradient(i);
  }
}

/// @return whether an open gate may have begun another step.
bool leave_work(TinyTrainer& trainer, End end, Draw& draw) {
  if (end == End::after_step) return false;
  if (end == End::after_move) {
    trainer.engine().set_placement(way_move(trainer.options(), draw.below(5)));
    return false;
  }
  trainer.forward();
  if (end == End::in_forward) return false;
  for (std::uint32_t pass = 1; end == End::in_last_pass && pass < trainer.options().passes;
       ++pass) {
    trainer.backward();
    trainer.forward();
  }
  const bool all = end == End::after_backward;
  give_some(trainer, all ? 0 : static_cast<std::uint32_t>(draw.below(6)));
  if (end == End::after_discard) trainer.engine().discard();
  return trainer.options().config.schedule == Schedule::open;
}

End draw_end(Draw& draw, const DrawnWay& way) {
  const End end = static_cast<End>(draw.below(kEnds.size()));
  if (end == End::after_move && !way.moves) return End::after_step;
  if (end == End::after_discard && way.model.open) return End::in_backward;
  return end;
}

/// Every element is that of one of the two, or a NaN of Config::check_waits.
bool made_of(const Weights& seen, const Weights& before, const Weights& after, bool may_be_nan) {
  for (std::size_t i = 0; i < seen.size(); ++i) {
    for (std::size_t e = 0; e < seen[i].size(); ++e) {
      const std::uint16_t half = seen[i][e];
      const bool spoilt = may_be_nan && std::isnan(half_to_float(half));
      if (half != before[i][e] && half != after[i][e] && !spoilt) return false;
    }
  }
  return true;
}

std::string holdings(const sim::Counters& c) {
  return std::to_string(c.live_allocations) + " allocations, " + std::to_string(c.live_streams) +
         " streams, " + std::to_string(c.live_events) + " events, " +
         std::to_string(c.live_registrations) + " registrations";
}

/// @return where it ended.
std::string destroy_in_flight(const DrawnWay& way, const std::vector<Weights>& reference,
                              std::uint64_t seed) {
  Draw draw(seed ^ 0xDE57);
  TinyTrainer trainer(way.options);
  const std::string before = holdings(trainer.gpu().counters());
  const std::size_t used = trainer.gpu().memory().used_bytes;
  trainer.start();
  const std::uint64_t steps = draw.below(kMostSteps + 1);
  for (std::uint64_t s = 0; s < steps; ++s) trainer.step();
  const End end = draw_end(draw, way);
  const bool may_be_ahead = leave_work(trainer, end, draw);
  const bool moved = trainer.engine().stats().moves > 0;
  trainer.stop();
  EXPECT_EQ(holdings(trainer.gpu().counters()), before);
  EXPECT_EQ(trainer.gpu().memory().used_bytes, used);
  const Weights seen = weights_of(trainer);
  const bool check_waits = way.options.config.check_waits;
  if (may_be_ahead) {
    EXPECT_TRUE(made_of(seen, reference[steps], reference[steps + 1], check_waits));
  } else {
    EXPECT_TRUE(seen == reference[steps]) << "after " << steps << " steps";
  }
  if (draw.below(4) == 0 && !(may_be_ahead && check_waits)) {  // the device takes another engine
    trainer.start();
    trainer.step();
  }
  return moved ? "with an automatic move" : kEnds.at(static_cast<std::size_t>(end));
}

TEST(Destruction, InFlightLeavesNothingAndTheWeightsOfTheLastStep) {
  std::map<WayModel, std::vector<Weights>> references;
  std::map<std::string, std::uint64_t> ends;
  const bool all = for_each_seed(kSeeds, [&](std::uint64_t seed) {
    const DrawnWay way = draw_way(seed);
    SCOPED_TRACE(describe(way.options));
    std::vector<Weights>& reference = references[way.model];
    if (reference.empty()) reference = reference_of(way.model);
    ends[destroy_in_flight(way, reference, seed)] += 1;
  });
  for (const auto& [end, times] : ends) {
    std::printf("%s: %llu\n", end.c_str(), static_cast<unsigned long long>(times));
  }
  if (!all) return;
  for (const char* end : kEnds) EXPECT_GE(ends[end], 20U) << end;
  EXPECT_GE(ends["with an automatic move"], 20U);
}

}  // namespace
}  // namespace outboard::testing
