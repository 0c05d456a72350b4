// SPDX-License-Identifier: Apache-2.0
/// Scalars and kernel together: one step in parts, steps that jump, a beta that changes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "optim/rule_scalars.hpp"
#include "outboard/half.hpp"
#include "simd/update.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::optim {
namespace {

struct State {
  explicit State(std::size_t elems, float initial = 1.0F)
      : p(elems, initial), m(elems, 0.0F), v(elems, 0.0F), weight(elems, 0) {}
  bool operator==(const State&) const = default;
  std::vector<float> p, m, v;
  std::vector<std::uint16_t> weight;
};

/// Elements [first, last) of `state`, in a call of their own with scalars of their own.
void update_part(State& state, std::span<const std::uint16_t> gradient, std::size_t first,
                 std::size_t last, const simd::AdamWScalars& scalars) {
  const auto part = [&](auto& values) { return std::span(values).subspan(first, last - first); };
  simd::UpdateShard shard;
  shard.grad = {gradient.data() + first, simd::Format::f16};
  shard.weight = {state.weight.data() + first, simd::Format::f16};
  shard.param = part(state.p);
  shard.state = {part(state.m), part(state.v)};
  (void)simd::update(shard, scalars);
}

void update_all(State& state, float gradient, const AdamW& settings, std::uint64_t step) {
  const std::vector<std::uint16_t> bits(state.p.size(), half_from_float(gradient));
  update_part(state, bits, 0, bits.size(), scalars(settings, step, 1.0));
}

State in_parts(std::size_t parts, std::span<const std::uint64_t> steps) {
  constexpr std::size_t kElems = 4096;
  const AdamW settings{.lr = 0.01, .weight_decay = 0.1};
  State state(kElems);
  for (const std::uint64_t step : steps) {
    std::vector<std::uint16_t> gradient(kElems);
    for (std::size_t e = 0; e < kElems; ++e) {
      gradient[e] = half_from_float(testing::mixed_unit(step, 0, e));
    }
    for (std::size_t i = 0; i < parts; ++i) {
      update_part(state, gradient, kElems * i / parts, kElems * (i + 1) / parts,
                  scalars(settings, step, 0.5));
    }
  }
  return state;
}

TEST(AdamWSteps, PartsOfOneStepShareOneBiasCorrection) {
  for (const std::vector<std::uint64_t>& steps :
       {std::vector<std::uint64_t>{1, 2, 3, 4, 5}, std::vector<std::uint64_t>{1, 2, 5, 6, 7}}) {
    const State whole = in_parts(1, steps);
    for (const std::size_t parts : {2u, 7u, 64u}) {
      EXPECT_TRUE(in_parts(parts, steps) == whole) << parts << " parts, last step " << steps.back();
    }
  }
}

/// p after gradients with step numbers, in double.
double plain(std::span<const std::uint64_t> steps, std::span<const float> gradients,
             std::span<const AdamW> settings) {
  double p = 1.0, m = 0.0, v = 0.0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const AdamW& s = settings[i];
    const auto t = static_cast<double>(steps[i]);
    const auto g = static_cast<double>(gradients[i]);
    m = s.beta1 * m + (1.0 - s.beta1) * g;
    v = s.beta2 * v + (1.0 - s.beta2) * g * g;
    const double corrected = m / (1.0 - std::pow(s.beta1, t));
    p -= s.lr * corrected / (std::sqrt(v / (1.0 - std::pow(s.beta2, t))) + s.eps);
  }
  return p;
}

TEST(AdamWSteps, AJumpOfTheStepCountCorrectsForTheNewOne) {
  const AdamW settings{.lr = 0.1};
  const std::vector<std::uint64_t> steps = {1, 2, 5, 6};
  const std::vector<float> gradients = {0.5F, 0.25F, 0.125F, 1.0F};
  State state(1);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    update_all(state, gradients[i], settings, steps[i]);
  }
  const std::vector<AdamW> same(4, settings);
  const double want = plain(steps, gradients, same);
  EXPECT_NEAR(static_cast<double>(state.p[0]), want, 1e-6);
  // The two counts are far enough apart for this to tell.
  const double no_jump = plain(std::vector<std::uint64_t>{1, 2, 3, 4}, gradients, same);
  EXPECT_GT(std::abs(want - no_jump), 1e-3);
}

TEST(AdamWSteps, AChangedBetaIsCorrectedByItsOwnPower) {
  const AdamW before{.lr = 0.1};
  const AdamW after{.lr = 0.1, .beta2 = 0.99};
  const std::vector<AdamW> settings = {before, before, before, after};
  const std::vector<float> gradients = {0.5F, 0.25F, 0.125F, 1.0F};
  State state(1);
  for (std::size_t i = 0; i < 4; ++i) update_all(state, gradients[i], settings[i], i + 1);
  // 0.6921365: powers of the old beta2 carried on.
  EXPECT_NEAR(static_cast<double>(state.p[0]), 0.6271032, 1e-6);
}

TEST(AdamWSteps, GoOnPastTheLargestInt) {
  const AdamW settings{.lr = 0.1};
  State state(1);
  for (const std::uint64_t step :
       {std::uint64_t{16'777'216}, std::uint64_t{16'777'217}, std::uint64_t{16'777'218},
        (std::uint64_t{1} << 31), (std::uint64_t{1} << 31) + 1}) {
    const State before = state;
    update_all(state, 0.5F, settings, step);
    // Bias corrections are 1 by now: plain moving averages.
    const double m = 0.9 * static_cast<double>(before.m[0]) + 0.05;
    const double v = 0.999 * static_cast<double>(before.v[0]) + 0.00025;
    const double p = static_cast<double>(before.p[0]) - 0.1 * m / std::sqrt(v);
    EXPECT_NEAR(static_cast<double>(state.p[0]), p, 1e-6) << step;
  }
}

}  // namespace
}  // namespace outboard::optim
