// SPDX-License-Identifier: Apache-2.0
/// Lengths, offsets, shard borders and shared memory change nothing, and nothing outside is
/// touched.
#include "simd/adamw.hpp"
#include "tests/simd/simd_support.hpp"

namespace outboard::simd::testing {
namespace {

class LayoutOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(LayoutOnEveryTarget);

/// What three steps make of `old`, one element at a time.
State expected_after_three(const State& old, const AdamWScalars& s) {
  State now = old;
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < now.size(); ++i) (void)adamw_step(now.shard(i, 1), s);
  }
  return now;
}

template <class... Where>
void expect_same_when_guarded(const State& old, const State& expected, const AdamWScalars& s,
                              Where... where) {
  const std::size_t size = old.size();
  GuardedArray<std::uint16_t> grad(size, where...);
  GuardedArray<std::uint16_t> weight(size, where...);
  GuardedArray<float> param(size, where...);
  GuardedArray<float> exp_avg(size, where...);
  GuardedArray<float> exp_avg_sq(size, where...);
  std::ranges::copy(old.grad, grad.span().begin());
  std::ranges::copy(old.param, param.span().begin());
  std::ranges::copy(old.exp_avg, exp_avg.span().begin());
  std::ranges::copy(old.exp_avg_sq, exp_avg_sq.span().begin());
  const AdamWShard shard = {grad.span(), param.span(), exp_avg.span(), exp_avg_sq.span(),
                            weight.span()};
  for (int step = 0; step < 3; ++step) (void)adamw_step(shard, s);
  EXPECT_TRUE(same_bits(grad.span(), old.grad));
  EXPECT_TRUE(same_bits(param.span(), expected.param));
  EXPECT_TRUE(same_bits(exp_avg.span(), expected.exp_avg));
  EXPECT_TRUE(same_bits(exp_avg_sq.span(), expected.exp_avg_sq));
  EXPECT_TRUE(same_bits(weight.span(), expected.weight));
  EXPECT_TRUE(grad.intact() && weight.intact() && param.intact() && exp_avg.intact() &&
              exp_avg_sq.intact());
}

TEST_P(LayoutOnEveryTarget, AnyLengthAtAnyOffsetAndAgainstAGuardPage) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed());
  const AdamWScalars s = make_scalars({.coeff = 1e-3});
  for (const std::size_t size : kLengths) {
    SCOPED_TRACE("length " + std::to_string(size));
    const State old = ordinary_state(random, size);
    const State expected = expected_after_three(old, s);
    expect_same_when_guarded(old, expected, s);
    for (std::size_t offset = 0; offset < 16; ++offset) {
      SCOPED_TRACE("offset " + std::to_string(offset));
      expect_same_when_guarded(old, expected, s, offset);
    }
  }
}

TEST_P(LayoutOnEveryTarget, RaggedShardsEqualOneShard) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 1);
  const AdamWScalars s = make_scalars({.coeff = 1e-3});
  for (int round = 0; round < 20; ++round) {
    State whole = ordinary_state(random, 10'007);
    State pieces = whole;
    const std::uint64_t overflows = adamw_step(whole.shard(), s);
    std::uint64_t sum = 0;
    for (std::size_t first = 0; first < pieces.size();) {
      const std::size_t count = std::min(pieces.size() - first, random.below(700));
      sum += adamw_step(pieces.shard(first, count), s);
      first += count;
    }
    ASSERT_TRUE(same_result(whole, pieces));
    ASSERT_EQ(overflows, sum);
  }
}

TEST_P(LayoutOnEveryTarget, WeightInPlaceOfTheGradientEqualsSeparate) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 2);
  const AdamWScalars s = make_scalars({.coeff = 1e-3});
  for (const std::size_t size : kLengths) {
    State separate = ordinary_state(random, size);
    State shared = separate;
    const std::vector<std::uint16_t> grad = separate.grad;
    (void)adamw_step(separate.shard(), s);
    AdamWShard shard = shared.shard();
    shard.weight_fp16 = shared.grad;
    (void)adamw_step(shard, s);
    shared.weight = shared.grad;
    EXPECT_TRUE(same_result(separate, shared)) << "length " << size;
    EXPECT_TRUE(same_bits(separate.grad, grad)) << "length " << size;
  }
}

}  // namespace
}  // namespace outboard::simd::testing
