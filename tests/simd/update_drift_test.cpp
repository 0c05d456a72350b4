// SPDX-License-Identifier: Apache-2.0
/// Many steps: small decays are not lost, moments die out without subnormals, and the caller's
/// floating-point mode stays.
#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "tests/simd/update_support.hpp"

namespace outboard::simd::testing {
namespace {

class DriftOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(DriftOnEveryTarget);

/// AdamW in double from double hyper-parameters, nothing rounded and no threshold.
struct PlainAdamW {
  Hyper h;
  double power1 = 1.0, power2 = 1.0;
  void begin_step() { power1 *= h.beta1, power2 *= h.beta2; }
  void step(reference::Element& at, double grad) const {
    auto& [m, v] = at.state;
    m = h.beta1 * m + (1.0 - h.beta1) * grad;
    v = h.beta2 * v + (1.0 - h.beta2) * grad * grad;
    const double divisor = std::sqrt(v / (1.0 - power2)) + h.eps;
    at.param -= h.lr * (h.weight_decay * at.param + m / (1.0 - power1) / divisor);
  }
};

TEST_P(DriftOnEveryTarget, TwentyThousandSmallStepsStayWithDouble) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed());
  constexpr std::size_t kWeights = 2048;
  for (const Hyper base :
       {Hyper{.lr = 1e-5, .weight_decay = 0.1}, Hyper{.lr = 2e-6, .weight_decay = 0.01}}) {
    Tensor tensor(kWeights, Format::f32, Format::f16);
    std::vector<reference::Element> plain(kWeights);
    for (std::size_t i = 0; i < kWeights; ++i) {
      plain[i].param = tensor.param[i] = random.signed_uniform();
    }
    PlainAdamW rule{base};
    Hyper hyper = base;
    for (hyper.step = 1; hyper.step <= 20'000; ++hyper.step) {
      rule.begin_step();
      for (std::size_t i = 0; i < kWeights; ++i) {
        const float grad = random.signed_uniform();
        tensor.set_grad(i, std::bit_cast<std::uint32_t>(grad));
        rule.step(plain[i], grad);
      }
      (void)update(tensor.shard(), make_scalars(hyper));
    }
    double signed_sum = 0.0, squares = 0.0, magnitudes = 0.0;
    for (std::size_t i = 0; i < kWeights; ++i) {
      const double error = static_cast<double>(tensor.param[i]) - plain[i].param;
      // Away from zero or towards it: what a lost or doubled decay would do to both signs alike.
      signed_sum += std::copysign(1.0, plain[i].param) * error;
      squares += error * error;
      magnitudes += std::fabs(plain[i].param);
    }
    EXPECT_LE(std::fabs(signed_sum), 1e-6 * magnitudes);
    EXPECT_LE(std::sqrt(squares * kWeights), 1e-5 * magnitudes);
  }
}

TEST_P(DriftOnEveryTarget, AfterOneGradientFifteenHundredStepsOfZero) {
  const Hyper base = {.lr = 1e-3, .weight_decay = 0.0};
  PlainAdamW plain{base};
  reference::Element element{1.0, {}};
  Tensor tensor(100, Format::f16, Format::f16);
  std::ranges::fill(tensor.param, 1.0F);
  Hyper hyper = base;
  for (hyper.step = 1; hyper.step <= 1501; ++hyper.step) {
    const double grad = hyper.step == 1 ? 1.0 : 0.0;
    for (std::size_t i = 0; i < tensor.size(); ++i) tensor.set_grad(i, grad == 1.0 ? 0x3C00 : 0);
    plain.begin_step();
    plain.step(element, grad);
    (void)update(tensor.shard(), make_scalars(hyper));
    for (const float moment : {tensor.state[0][0], tensor.state[0][99], tensor.state[1][99]}) {
      ASSERT_TRUE(moment == 0.0F || std::isnormal(moment)) << "step " << hyper.step;
    }
  }
  EXPECT_EQ(tensor.state[0][0], 0.0F);
  EXPECT_NEAR(tensor.param[0], element.param, 1e-6);
  EXPECT_NEAR(tensor.param[99], element.param, 1e-6);
}

/// The control bits of this thread's floating-point unit.
std::uint64_t control_bits() {
#if defined(__x86_64__)
  return _mm_getcsr() & 0xFFC0U;
#elif defined(__aarch64__)
  std::uint64_t bits = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
#else
  return static_cast<std::uint64_t>(std::fegetround());
#endif
}

TEST_P(DriftOnEveryTarget, TheCallersFloatingPointModeStays) {
  Random random(1);
  Tensor tensor(200, Format::bf16, Format::bf16);
  fill_ordinary(tensor, random);
  for (const int rounding : {FE_TONEAREST, FE_UPWARD}) {
    ASSERT_EQ(std::fesetround(rounding), 0);
#if defined(__x86_64__)
    if (rounding == FE_UPWARD) _mm_setcsr(_mm_getcsr() | 0x8040U);  // flush to zero, both ways
#endif
    const std::uint64_t before = control_bits();
    for (const RuleCase& rule : every_rule({})) (void)full_step(tensor.shard(), rule.scalars);
    const GradientReduction found = reduce_gradient(tensor.stored(), tensor.size());
    const std::uint64_t after = control_bits();
    ASSERT_EQ(std::fesetenv(FE_DFL_ENV), 0);
    EXPECT_EQ(after, before);
    EXPECT_EQ(found.non_finite, 0U);
  }
}

}  // namespace
}  // namespace outboard::simd::testing
