// SPDX-License-Identifier: Apache-2.0
// Schedule::open against Schedule::exact without clipping and with a fixed loss scale: the same
// bits, over every rule and dtype and over random speeds, delays, orders and ways to run. A
// parameter with a non-finite gradient is as one that got none.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/drawn_options.hpp"
#include "engine/every_rule.hpp"
#include "engine/splits.hpp"
#include "engine/trajectory.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSeeds = 800;
constexpr std::uint64_t kSteps = 5;
constexpr std::uint64_t kBadStep = 2;
constexpr std::uint32_t kBadParameter = 3;

/// What decides the bits of a run; `sums`: up to this many micro-batches, added up by the engine.
struct Model {
  std::size_t rule = 0;
  std::size_t dtypes = 0;  ///< 3: mixed
  std::uint32_t sums = 0;
  auto operator<=>(const Model&) const = default;
};

std::uint32_t nan_of(DType dtype) {
  return dtype == DType::f16 ? 0x7E00U : dtype == DType::bf16 ? 0x7FC0U : 0x7FC00000U;
}

TinyOptions options_of(const Model& model) {
  TinyOptions options;
  options.device = virtual_device(0);
  options.device.memory_bytes = std::size_t{8} << 20;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 64.0};
  options.config.bucket_bytes = std::size_t{8} << 10;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  const std::vector<NamedRule> rules = every_rule();
  options.rules = {rules.at(model.rule).group,
                   {rules.at((model.rule + 3) % rules.size()).group.rule, random_with_average()}};
  const std::array<std::uint64_t, 9> sizes = {1, 4096, 7, 12289, 300, 0, 4097, 2000, 31};
  add_parameters(options, sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    options.parameters[i].dtype = kEveryDType[model.dtypes < 3 ? model.dtypes : i % 3];
  }
  if (model.sums > 0) {
    options.config.accumulate = Accumulate::host;
    options.config.accumulation = model.sums;
  }
  return options;
}

bool has_gradient(std::uint64_t step, std::uint32_t i) {
  return i != 6 || step != 1;
}

/// A step of `micro_batches`; some parameters sit out the last.
TinyStep step_of(TinyTrainer& trainer, std::uint32_t micro_batches) {
  trainer.forward();
  for (std::uint32_t micro = 0; micro + 1 < micro_batches; ++micro) trainer.backward();
  const auto kept = trainer.options().has_gradient;
  if (micro_batches > 1) {
    trainer.options().has_gradient = [kept](std::uint64_t step, std::uint32_t i) {
      return kept(step, i) && i % 4 != 1;
    };
  }
  trainer.backward();
  trainer.options().has_gradient = kept;
  return trainer.finish();
}

struct Run {
  Trajectory trajectory;
  std::vector<StepResult> results;
};

Run run(TinyOptions options, std::uint64_t digests) {
  const std::uint32_t micro_batches =
      options.config.accumulate == Accumulate::host ? options.config.accumulation : 1;
  TinyTrainer trainer(std::move(options));
  trainer.start();
  Run out;
  for (std::uint64_t s = 0; s < kSteps; ++s) {
    trainer.options().digest = s + 1 == kSteps || (digests >> s & 1) != 0;
    const TinyStep step = step_of(trainer, micro_batches);
    out.results.push_back(step.result);
    TrajectoryStep& seen = out.trajectory.emplace_back();
    seen.grad_norm = step.result.grad_norm;
    seen.loss_scale = step.result.loss_scale;
    seen.next_loss_scale = step.result.next_loss_scale;
    seen.skipped = step.result.skipped();
    if (trainer.options().digest) seen.digest = step.digest;
  }
  for (std::uint64_t s = 0; s < kSteps; ++s) out.trajectory[s].loss = trainer.loss(s);
  return out;
}

/// Exact, plainest way; the bad parameter gets no gradient where the others' run has a NaN.
Trajectory reference_of(const Model& model, bool bad) {
  TinyOptions options = options_of(model);
  options.has_gradient = [bad](std::uint64_t step, std::uint32_t i) {
    return has_gradient(step, i) && !(bad && step == kBadStep && i == kBadParameter);
  };
  Trajectory out = run(std::move(options), ~std::uint64_t{0}).trajectory;
  EXPECT_NE(out[0].loss, out[1].loss) << "weights never move";
  return out;
}

TinyOptions open_options(const Model& model, bool bad) {
  TinyOptions options = options_of(model);
  options.config.schedule = Schedule::open;
  options.has_gradient = has_gradient;
  const std::uint32_t nan = nan_of(options.parameters[kBadParameter].dtype);
  if (bad) options.injected = {{kBadStep, kBadParameter, 12288, nan}};
  return options;
}

/// "" if the run has the reference's bits and reports what was left out.
std::string difference(const Trajectory& reference, Run seen, bool bad) {
  for (std::uint64_t s = 0; s < kSteps; ++s) {
    const StepResult& result = seen.results[s];
    const bool partial = bad && s == kBadStep;
    const std::string at = " of step " + std::to_string(s);
    if (result.outcome != (partial ? StepOutcome::partial : StepOutcome::applied)) {
      return "outcome" + at;
    }
    if (result.non_finite.has_value() != partial) return "non-finite element" + at;
    if (!partial) continue;
    if (result.non_finite->parameter.value != kBadParameter) return "named parameter" + at;
    if (result.non_finite->element != 12288 || !result.non_finite->is_nan) return "element" + at;
    if (!std::isnan(result.grad_norm)) return "norm" + at;
    seen.trajectory[s].grad_norm = reference[s].grad_norm;
  }
  return first_difference(reference, seen.trajectory);
}

class OpenRule : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Rules, OpenRule, ::testing::Range(std::size_t{0}, every_rule().size()),
                         [](const auto& test) { return every_rule()[test.param].name; });

TEST_P(OpenRule, HasTheBitsOfExactInEveryDTypeAndWay) {
  for (std::size_t dtypes = 0; dtypes < 4; ++dtypes) {
    for (const std::uint32_t sums : {0U, 3U}) {
      const Model model{GetParam(), dtypes, sums};
      for (const bool bad : {false, true}) {
        const Trajectory reference = reference_of(model, bad);
        for (const Placement placement :
             {Placement::host, Placement::device_resident, Placement::device_streamed}) {
          SCOPED_TRACE("dtypes " + std::to_string(dtypes) + " sums " + std::to_string(sums) +
                       " placement " + std::to_string(static_cast<int>(placement)) +
                       (bad ? " bad" : ""));
          TinyOptions options = open_options(model, bad);
          options.config.placement = placement;
          if (placement == Placement::device_streamed && has_lamb(options)) continue;
          EXPECT_EQ(difference(reference, run(options, 4), bad), "");
          options.device.mode = sim::Mode::threads;
          options.config.host.threads_per_node = 2;
          EXPECT_EQ(difference(reference, run(options, 4), bad), "") << "threads";
        }
      }
    }
  }
}

struct Drawn {
  Model model;
  bool bad = false;
  TinyOptions options;
};

Drawn draw_run(std::uint64_t seed) {
  Draw draw(seed);
  Drawn out;
  // Few models, so that each reference serves many seeds.
  out.model = {seed % every_rule().size(), seed / 8 % 4, seed % 3 == 0 ? 2U : 0U};
  out.bad = draw.coin();
  out.options = open_options(out.model, out.bad);
  out.options.device.seed = seed;
  draw_device(draw, out.options.device);
  Config drawn = out.options.config;
  draw_config(draw, drawn);
  drawn.accumulate = out.options.config.accumulate;
  const bool streamed = drawn.placement == Placement::device_streamed;
  if (streamed && has_lamb(out.options)) drawn.placement = Placement::device_resident;
  out.options.config = drawn;
  round_fraction(out.options);
  draw_trainer(draw, out.options);
  if (out.model.sums > 0) out.options.gradient_ring = 0;
  return out;
}

void expect_same(std::uint64_t seed) {
  static std::map<std::pair<Model, bool>, Trajectory> references;
  Drawn drawn = draw_run(seed);
  const auto key = std::pair(drawn.model, drawn.bad);
  if (!references.contains(key)) references[key] = reference_of(drawn.model, drawn.bad);
  const std::string what = describe(drawn.options) + (drawn.bad ? " bad" : "");
  std::string problem;
  try {
    problem =
        difference(references[key], run(std::move(drawn.options), mix_bits(seed, 0, 1)), drawn.bad);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  EXPECT_EQ(problem, "") << what;
}

TEST(OpenSeeds, DelaysOrdersAndOptionsNeverChangeABit) {
  for_each_seed(kSeeds, expect_same);
}

}  // namespace
}  // namespace outboard::testing
