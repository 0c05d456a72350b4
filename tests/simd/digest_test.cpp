// SPDX-License-Identifier: Apache-2.0
#include "simd/digest.hpp"

#include "tests/simd/update_support.hpp"

namespace outboard::simd::testing {
namespace {

class DigestOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(DigestOnEveryTarget);

std::uint64_t scramble(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

/// The formula of the header, one element.
std::uint64_t plain_mix(std::uint64_t parameter, std::uint64_t element, float p, float m, float v) {
  const auto word = [](float value) { return std::uint64_t{std::bit_cast<std::uint32_t>(value)}; };
  std::uint64_t z = scramble((parameter + 1) * 0x9E3779B97F4A7C15U) + element * 0x9E3779B97F4A7C15U;
  z ^= word(v);
  z = (z ^ (z >> 32)) * 0xBF58476D1CE4E5B9U;
  z ^= z >> 29;
  return scramble(z ^ (word(m) << 32 | word(p)));
}

DigestShard shard_of(const State& state, std::size_t first, std::size_t count,
                     std::uint64_t parameter = 3, std::uint64_t origin = 0) {
  const auto cut = [&](const std::vector<float>& data) {
    return std::span<const float>(data).subspan(first, count);
  };
  return {parameter, origin + first, cut(state.param), {cut(state.exp_avg), cut(state.exp_avg_sq)}};
}
std::uint64_t digest(const State& state) {
  return digest_state(shard_of(state, 0, state.size()));
}

TEST_P(DigestOnEveryTarget, IsTheSumOfTheFormula) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed());
  for (const std::size_t size : kLengths) {
    const State state = ordinary_state(random, size);
    for (const std::uint64_t origin :
         {std::uint64_t{0}, std::uint64_t{0xFFFFFFF7}, random.bits()}) {
      const std::uint64_t parameter = random.bits() >> random.below(64);
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < size; ++i) {
        sum +=
            plain_mix(parameter, origin + i, state.param[i], state.exp_avg[i], state.exp_avg_sq[i]);
      }
      EXPECT_EQ(digest_state(shard_of(state, 0, size, parameter, origin)), sum)
          << "length " << size;
    }
  }
}

TEST_P(DigestOnEveryTarget, DoesNotDependOnTheSplit) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 1);
  const State state = ordinary_state(random, 5'003);
  for (int round = 0; round < 20; ++round) {
    std::uint64_t sum = 0;
    for (std::size_t first = 0; first < state.size();) {
      const std::size_t count = std::min(state.size() - first, random.below(300));
      sum += digest_state(shard_of(state, first, count));
      first += count;
    }
    EXPECT_EQ(sum, digest(state));
  }
}

TEST_P(DigestOnEveryTarget, EverySingleBitShows) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 2);
  State state = ordinary_state(random, 37);
  const std::uint64_t before = digest(state);
  for (std::vector<float>* words : {&state.param, &state.exp_avg, &state.exp_avg_sq}) {
    for (float& value : *words) {
      const float kept = value;
      for (unsigned bit = 0; bit < 32; ++bit) {
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(kept) ^ (1U << bit));
        ASSERT_NE(digest(state), before);
      }
      value = kept;
    }
  }
  EXPECT_EQ(digest(state), before);
}

TEST_P(DigestOnEveryTarget, ExchangesShow) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 3);
  const State state = ordinary_state(random, 100);
  const std::uint64_t before = digest(state);
  for (std::size_t i = 0; i + 1 < state.size(); ++i) {
    State elements = state;
    std::swap(elements.param[i], elements.param[i + 1]);
    ASSERT_NE(digest(elements), before);
    std::swap(elements.exp_avg[i], elements.exp_avg[i + 1]);
    std::swap(elements.exp_avg_sq[i], elements.exp_avg_sq[i + 1]);
    ASSERT_NE(digest(elements), before);
    State words = state;
    std::swap(words.param[i], words.exp_avg[i]);
    ASSERT_NE(digest(words), before);
    State squares = state;
    std::swap(squares.param[i], squares.exp_avg_sq[i]);
    ASSERT_NE(digest(squares), before);
  }
}

TEST_P(DigestOnEveryTarget, ParameterAndPositionShowEvenForZeros) {
  const State zeros(64);
  const std::uint64_t here = digest_state(shard_of(zeros, 0, 64, 3, 0));
  EXPECT_NE(here, digest_state(shard_of(zeros, 0, 64, 4, 0)));
  EXPECT_NE(here, digest_state(shard_of(zeros, 0, 64, 3, 1)));
  EXPECT_NE(here, digest_state(shard_of(zeros, 0, 63, 3, 0)));
  EXPECT_EQ(digest_state(shard_of(zeros, 0, 0)), 0U);
}

TEST_P(DigestOnEveryTarget, TakesAbsentStatesAsZerosAndTheAverageAsMore) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 4);
  for (const std::size_t size : kLengths) {
    Tensor tensor(size, Format::f16, Format::f16);
    fill_ordinary(tensor, random);
    const std::vector<float> zeros(size);
    const std::span<const float> param = tensor.param, state = tensor.state[0], ema = tensor.ema;
    EXPECT_EQ(digest_state({4, 9, param, {state, {}}}),
              digest_state({4, 9, param, {state, zeros}}));
    EXPECT_EQ(digest_state({4, 9, param, {}}), digest_state({4, 9, param, {zeros, zeros}}));
    std::uint64_t more = 0;
    for (std::size_t i = 0; i < size; ++i) {
      std::uint64_t z = scramble(5 * 0x9E3779B97F4A7C15U) + (9 + i) * 0x9E3779B97F4A7C15U;
      z ^= 0x6A09E667F3BCC908U ^ std::bit_cast<std::uint32_t>(ema[i]);
      z = (z ^ (z >> 32)) * 0xBF58476D1CE4E5B9U;
      more += scramble(z ^ (z >> 29));
    }
    EXPECT_EQ(digest_state({4, 9, param, {state, {}}, ema}),
              digest_state({4, 9, param, {state, {}}}) + more);
  }
}

TEST_P(DigestOnEveryTarget, ReadsNothingBeyondTheShard) {
  for (const std::size_t size : kLengths) {
    GuardedArray<float> param(size);
    GuardedArray<float> exp_avg(size);
    GuardedArray<float> exp_avg_sq(size);
    for (GuardedArray<float>* array : {&param, &exp_avg, &exp_avg_sq}) {
      std::ranges::fill(array->span(), 1.5F);
    }
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < size; ++i) sum += plain_mix(9, i, 1.5F, 1.5F, 1.5F);
    EXPECT_EQ(digest_state({9, 0, param.span(), {exp_avg.span(), exp_avg_sq.span()}}), sum);
  }
}

}  // namespace
}  // namespace outboard::simd::testing
