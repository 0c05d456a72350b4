// SPDX-License-Identifier: Apache-2.0
// read_state() and weights_changed() while updates and uploads of the last step are under way, over
// random speeds, delays, orders and ways to run: what is read has the bits of a run in which
// nothing overlaps, and the run goes on with them.

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/drawn_options.hpp"
#include "engine/trajectory.hpp"
#include "support/expect_error.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSeeds = 1000;
constexpr std::uint64_t kSteps = 4;

/// What decides the bits. `changes`: 0 for none, else which weights the trainer changes when.
struct Model {
  bool gated = true;  ///< clips and scales dynamically; one step overflows
  std::uint32_t changes = 0;
  auto operator<=>(const Model&) const = default;
};

TinyOptions options_of(const Model& model) {
  TinyOptions options = small_model();
  options.digest = false;
  if (model.gated) return options;
  options.config.max_grad_norm = 0.0;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 64.0};
  options.injected.clear();
  return options;
}

/// Parameters that the trainer changes after a step: packed ones, split ones, several, none.
std::vector<std::uint32_t> changed_after(const Model& model, std::uint64_t step) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; model.changes > 0 && i < 9; ++i) {
    if (mix_bits(model.changes, step, i) % 3 == 0) out.push_back(i);
  }
  return out;
}

/// The trainer writes the weight itself, behind all that is queued on its stream.
void change_weight(TinyTrainer& trainer, std::uint32_t i) {
  trainer.engine().wait(trainer.id(i), trainer.reader());
  const auto elems = static_cast<std::size_t>(trainer.options().parameters[i].elems);
  const auto kernel = [weight = trainer.weight(i), elems](sim::KernelView& view) {
    for (std::uint16_t& half : view.as<std::uint16_t>(weight, elems)) {
      half = half_from_float(0.125F - 0.5F * half_to_float(half));
    }
  };
  trainer.gpu().launch(trainer.reader(), sim::Duration(1000), kernel, "change");
  trainer.engine().weights_changed(trainer.id(i), trainer.reader());
}

using Bits = std::vector<std::uint32_t>;

/// All of one parameter that the engine holds; no wait().
Bits state_of(TinyTrainer& trainer, std::uint32_t i) {
  Bits all;
  std::vector<float> values(trainer.options().parameters[i].elems);
  for (const std::string_view stream : trainer.engine().state_streams(trainer.id(i))) {
    trainer.engine().read_state(trainer.id(i), stream, values);
    for (const float value : values) all.push_back(std::bit_cast<std::uint32_t>(value));
  }
  all.push_back(static_cast<std::uint32_t>(trainer.engine().step_count(trainer.id(i))));
  return all;
}

using States = std::vector<Bits>;  // by parameter

struct Reference {
  std::vector<States> stepped, changed;  ///< by step: right after it, and after the changes
  std::vector<double> losses;
  std::uint64_t digest = 0;
};

States all_states(TinyTrainer& trainer) {
  States out;
  for (std::uint32_t i = 0; i < trainer.in_use(); ++i) out.push_back(state_of(trainer, i));
  return out;
}

Reference reference_of(const Model& model) {
  TinyOptions options = options_of(model);
  options.config.schedule = Schedule::serial;
  TinyTrainer trainer(options);
  trainer.start();
  Reference out;
  for (std::uint64_t s = 0; s < kSteps; ++s) {
    EXPECT_EQ(trainer.step().result.skipped(), model.gated && s == 2);
    out.stepped.push_back(all_states(trainer));
    for (const std::uint32_t i : changed_after(model, s)) change_weight(trainer, i);
    out.changed.push_back(all_states(trainer));
    EXPECT_EQ(out.stepped[s] == out.changed[s], changed_after(model, s).empty());
  }
  for (std::uint64_t s = 0; s < kSteps; ++s) out.losses.push_back(trainer.loss(s));
  out.digest = trainer.engine().state_digest();
  return out;
}

class ReadingRun {
 public:
  ReadingRun(Draw& draw, const Model& model, const Reference& reference, const TinyOptions& options)
      : draw_(draw), model_(model), reference_(reference), trainer_(options) {}

  void go() {
    trainer_.start();
    for (std::uint64_t s = 0; s < kSteps; ++s) {
      trainer_.forward();
      trainer_.backward();
      // Gradients on their way change nothing; an open gate may have begun their updates.
      if (s > 0 && !open()) expect_some(reference_.changed[s - 1], "with gradients pending");
      trainer_.finish();
      expect_some(reference_.stepped[s], "after the step");
      for (const std::uint32_t i : changed_after(model_, s)) change_weight(trainer_, i);
      expect_some(reference_.changed[s], "after the changes");
    }
    for (std::uint64_t s = 0; s < kSteps; ++s) EXPECT_EQ(trainer_.loss(s), reference_.losses[s]);
    EXPECT_EQ(trainer_.engine().state_digest(), reference_.digest);
  }

 private:
  [[nodiscard]] bool open() { return trainer_.options().config.schedule == Schedule::open; }
  /// None, one or two parameters, drawn.
  void expect_some(const States& states, const char* when) {
    for (std::uint64_t n = draw_.below(3); n > 0; --n) {
      const auto i = static_cast<std::uint32_t>(draw_.below(states.size()));
      EXPECT_TRUE(state_of(trainer_, i) == states[i])
          << "w" << i << " " << when << " " << trainer_.steps();
    }
  }

  Draw& draw_;
  const Model& model_;
  const Reference& reference_;
  TinyTrainer trainer_;
};

TinyOptions draw_options(Draw& draw, const Model& model, std::uint64_t seed) {
  TinyOptions options = options_of(model);
  options.device.seed = seed;
  draw_device(draw, options.device);
  draw_config(draw, options.config);
  draw_schedule(draw, options.config, model.gated);
  round_fraction(options);
  draw_trainer(draw, options);
  if (options.config.placement == Placement::automatic) options.gradient_ring = 0;
  return options;
}

TEST(BetweenSteps, StateIsReadAndWeightsChangeBesideWorkUnderWay) {
  std::map<Model, Reference> references;
  for_each_seed(kSeeds, [&](std::uint64_t seed) {
    Draw draw(seed);
    Model model{.gated = draw.coin()};
    model.changes = static_cast<std::uint32_t>(draw.below(4));
    if (!references.contains(model)) references[model] = reference_of(model);
    const TinyOptions options = draw_options(draw, model, seed);
    SCOPED_TRACE(describe(options));
    ReadingRun(draw, model, references[model], options).go();
  });
}

// --- what is refused -----------------------------------------------------------------------------

/// The refresh may still be on its way and would overwrite the change.
TEST(BetweenSteps, AChangeNeedsAWaitForTheLastRefresh) {
  for (const Placement placement :
       {Placement::host, Placement::device_resident, Placement::device_streamed}) {
    for (const Schedule schedule : {Schedule::exact, Schedule::serial, Schedule::open}) {
      TinyOptions options = options_of({.gated = false});
      options.config.placement = placement;
      options.config.schedule = schedule;
      options.has_gradient = [](std::uint64_t, std::uint32_t i) { return i != 5; };
      TinyTrainer trainer(options);
      trainer.start();
      trainer.step();
      const Bits before = state_of(trainer, 3);
      expect_error(ErrorCode::protocol_error,
                   {"weights_changed()", "'w3'", "nobody called wait()", "call wait()"},
                   [&] { trainer.engine().weights_changed(trainer.id(3), trainer.reader()); });
      EXPECT_NO_THROW(trainer.engine().weights_changed(trainer.id(5), trainer.reader()))
          << "it was not refreshed";
      EXPECT_EQ(state_of(trainer, 3), before);
      change_weight(trainer, 3);
      EXPECT_NE(state_of(trainer, 3), before);
      EXPECT_TRUE(trainer.step().result.applied()) << "the engine goes on";
    }
  }
}

TEST(BetweenSteps, AChangeNeedsNoWaitWhereNothingIsUnderWay) {
  TinyOptions options = options_of({.gated = false});
  options.config.schedule = Schedule::blocking;
  TinyTrainer blocking(options);
  blocking.start();
  blocking.step();
  EXPECT_NO_THROW(blocking.engine().weights_changed(blocking.id(3), blocking.reader()));
  options.config.schedule = Schedule::exact;
  options.injected = {{.step = 0, .parameter = 0, .element = 0}};
  TinyTrainer skipping(options);
  skipping.start();
  EXPECT_TRUE(skipping.step().result.skipped());
  EXPECT_NO_THROW(skipping.engine().weights_changed(skipping.id(3), skipping.reader()));
}

}  // namespace
}  // namespace outboard::testing
