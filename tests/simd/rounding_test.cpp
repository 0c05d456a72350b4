// SPDX-License-Identifier: Apache-2.0
/// Stochastic rounding: its expectation, its neighbours, and what it may depend on. A rule that
/// moves nothing (SGD at a learning rate of 0) shows the rounding alone.
#include <array>
#include <limits>
#include <map>

#include "tests/simd/update_support.hpp"

namespace outboard::simd::testing {
namespace {

class RoundingOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(RoundingOnEveryTarget);

struct Rounded {
  std::vector<std::uint16_t> bits;
  std::uint64_t overflows = 0;
};

Rounded round_all(Format format, std::vector<float> masters, std::uint64_t key,
                  std::uint64_t first_element = 0, bool at_random = true) {
  Rounded rounded{std::vector<std::uint16_t>(masters.size()), 0};
  const std::vector<std::uint16_t> grad(masters.size());
  const std::vector<float> before = masters;
  const UpdateShard shard = {.grad = {grad.data(), Format::f16},
                             .weight = {rounded.bits.data(), format},
                             .param = masters,
                             .state = {},
                             .first_element = first_element};
  rounded.overflows = update(shard, SgdScalars{.coeff = 1.0F}, {.rounding = {at_random, key}});
  EXPECT_TRUE(same_bits(masters, before));
  return rounded;
}

/// The element next to `value` on either side, found by value.
struct Around {
  double low, high;
};
Around around(Format format, float value) {
  auto bits = static_cast<std::uint16_t>(nearest_element(format, value));
  const double nearest = value_of(format, bits);
  const double exact = value;
  if (nearest == exact) return {nearest, nearest};
  // In magnitude, the neighbour beyond the exact value.
  const bool shrunk = std::fabs(nearest) < std::fabs(exact);
  bits = static_cast<std::uint16_t>(shrunk ? bits + 1 : bits - 1);
  const double other = value_of(format, bits);
  return {std::min(nearest, other), std::max(nearest, other)};
}

/// Values over all magnitudes that have a finite neighbour above.
std::vector<float> values(Format format, Random& random, std::size_t count) {
  std::vector<float> all;
  const int low = format == Format::f16 ? -27 : -132;
  const int high = format == Format::f16 ? 14 : 126;
  for (std::size_t i = 0; i < count; ++i) all.push_back(random.spread(low, high));
  return all;
}

TEST_P(RoundingOnEveryTarget, IsOneOfTheTwoNeighboursAndLeavesExactValues) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed());
  for (const Format format : kShort) {
    std::vector<float> masters = values(format, random, 40'000);
    masters.insert(masters.end(), {0.0F, -0.0F, FLT_TRUE_MIN, -FLT_TRUE_MIN, 0x1p-24F, 0x1p-25F});
    const Rounded rounded = round_all(format, masters, random.bits());
    for (std::size_t i = 0; i < masters.size(); ++i) {
      const auto [low, high] = around(format, masters[i]);
      const double got = value_of(format, rounded.bits[i]);
      ASSERT_TRUE(got == low || got == high) << masters[i] << " became " << got;
      ASSERT_EQ((rounded.bits[i] & 0x8000U) != 0, std::signbit(masters[i])) << masters[i];
    }
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double exact = value_of(format, static_cast<std::uint16_t>(bits));
      masters.push_back(static_cast<float>(std::isfinite(exact) ? exact : 1.0));
    }
    const Rounded exact = round_all(format, masters, random.bits());
    for (std::size_t i = masters.size() - 0x10000; i < masters.size(); ++i) {
      ASSERT_EQ(value_of(format, exact.bits[i]), static_cast<double>(masters[i]));
    }
  }
}

/// How often each of the `draws` values went up in magnitude, within 5.5 standard deviations.
void expect_fair(std::uint64_t ups, double probability, double draws, float value) {
  const double deviation = std::sqrt(draws * probability * (1.0 - probability)) + 1.0;
  EXPECT_LE(std::fabs(static_cast<double>(ups) - draws * probability), 5.5 * deviation)
      << value << ": " << ups << " of " << draws << " for " << probability;
}

TEST_P(RoundingOnEveryTarget, MeanOverTheElementsIsTheMaster) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 1);
  constexpr std::size_t kDraws = 1U << 16;
  for (const Format format : kShort) {
    for (const float value : values(format, random, 150)) {
      const auto [low, high] = around(format, value);
      if (low == high) continue;
      const Rounded rounded =
          round_all(format, std::vector<float>(kDraws, value), random.bits(), random.bits() >> 20);
      std::uint64_t highs = 0;
      for (const std::uint16_t bits : rounded.bits) highs += value_of(format, bits) == high;
      expect_fair(highs, (static_cast<double>(value) - low) / (high - low), kDraws, value);
    }
  }
}

TEST_P(RoundingOnEveryTarget, MeanOverTheKeysIsTheMasterAndNeighboursAreIndependent) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 2);
  constexpr std::size_t kKeys = 1U << 14;
  const std::uint64_t first_key = random.bits();
  // A quarter of the way up, so that two elements go up together once in sixteen.
  const std::vector<float> masters(32, 1.0F + 0.25F * 0x1p-7F);
  std::array<std::uint64_t, 32> ups = {};
  std::array<std::uint64_t, 32> together = {};
  std::array<std::uint64_t, 32> again = {};
  std::vector<std::uint16_t> last(32);
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const Rounded rounded = round_all(Format::bf16, masters, first_key + key);
    for (std::size_t i = 0; i < 32; ++i) {
      const bool up = rounded.bits[i] == 0x3F81;
      ups[i] += up;
      together[i] += up && rounded.bits[(i + 1) % 32] == 0x3F81;
      again[i] += up && last[i] == 0x3F81;
    }
    last = rounded.bits;
  }
  for (std::size_t i = 0; i < 32; ++i) {
    expect_fair(ups[i], 0.25, kKeys, masters[i]);
    expect_fair(together[i], 0.0625, kKeys, masters[i]);
    expect_fair(again[i], 0.0625, kKeys, masters[i]);
  }
}

TEST_P(RoundingOnEveryTarget, DependsOnTheElementNotOnTheShard) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 3);
  for (const Format format : kShort) {
    const std::vector<float> masters = values(format, random, 3000);
    // Across the border at which the upper half of the index changes, and elsewhere.
    for (const std::uint64_t origin :
         {std::uint64_t{0}, (std::uint64_t{1} << 32) - 1500, (std::uint64_t{7} << 32) - 1}) {
      const Rounded whole = round_all(format, masters, 5, origin);
      for (std::size_t first = 0; first < masters.size();) {
        const std::size_t count = std::min(masters.size() - first, 1 + random.below(400));
        const auto from = masters.begin() + static_cast<std::ptrdiff_t>(first);
        const std::vector<float> part(from, from + static_cast<std::ptrdiff_t>(count));
        const Rounded piece = round_all(format, part, 5, origin + first);
        ASSERT_TRUE(same_bits(piece.bits, std::span(whole.bits).subspan(first, count)));
        first += count;
      }
    }
    EXPECT_NE(round_all(format, masters, 5).bits, round_all(format, masters, 6).bits);
    EXPECT_NE(round_all(format, masters, 5, 0).bits,
              round_all(format, masters, 5, std::uint64_t{1} << 32).bits);
  }
}

TEST_P(RoundingOnEveryTarget, NothingBecomesInfiniteByChance) {
  const float last_half = std::nextafter(65520.0F, 0.0F);
  const float last_bf16 = std::nextafter(0x1.FFp127F, 0.0F);
  const std::map<Format, std::vector<float>> below = {
      {Format::f16, {65504.0F, std::nextafter(65504.0F, 1e9F), 65512.0F, last_half}},
      {Format::bf16, {0x1.FEp127F, 0x1.FE8p127F, last_bf16}}};
  const std::map<Format, std::vector<float>> beyond = {{Format::f16, {65520.0F, 65536.0F, 1e30F}},
                                                       {Format::bf16, {0x1.FFp127F, FLT_MAX}}};
  for (const Format format : kShort) {
    const bool is_half = format == Format::f16;
    const std::uint16_t largest = is_half ? 0x7BFF : 0x7F7F;
    for (std::uint64_t key = 0; key < 200; ++key) {
      const Rounded finite = round_all(format, below.at(format), key);
      EXPECT_EQ(finite.overflows, 0U);
      for (const std::uint16_t bits : finite.bits) ASSERT_EQ(bits, largest);
      const Rounded infinite = round_all(format, beyond.at(format), key);
      EXPECT_EQ(infinite.overflows, beyond.at(format).size());
      for (const std::uint16_t bits : infinite.bits) ASSERT_EQ(bits, largest + 1);
    }
  }
}

TEST_P(RoundingOnEveryTarget, WhatIsNotFiniteIsFoundAndRoundedWhereverItLies) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 5);
  // 0 or 8 lies in the first whole vector of every target.
  const std::array places = {std::size_t{0},     std::size_t{8},    std::size_t{255},
                             std::size_t{4096},  std::size_t{9999}, std::size_t{16'383},
                             std::size_t{19'998}};
  for (const Format format : kShort) {
    for (const bool at_random : {false, true}) {
      std::vector<float> masters = values(format, random, 19'999);
      const Rounded ordinary = round_all(format, masters, 11, 0, at_random);
      // A master becomes infinite by its gradient: what decay makes of an infinite one is NaN.
      std::vector<float> grad(masters.size());
      for (const std::size_t i : places) {
        masters[i] = i % 2 == 0 ? FLT_MAX : std::numeric_limits<float>::quiet_NaN();
        masters[i + 1 == masters.size() ? i - 1 : i + 1] = -FLT_MAX;
        grad[i] = i == 4096 ? FLT_MAX : 0.0F;
      }
      masters[4096] = -FLT_MAX;
      Rounded rounded{std::vector<std::uint16_t>(masters.size()), 0};
      const UpdateShard shard = {.grad = {grad.data(), Format::f32},
                                 .weight = {rounded.bits.data(), format},
                                 .param = masters,
                                 .state = {}};
      rounded.overflows =
          update(shard, SgdScalars{.lr = 1.0F, .coeff = 1.0F}, {.rounding = {at_random, 11}});
      EXPECT_TRUE(std::isinf(masters[4096]));
      std::uint64_t overflows = 0;
      for (std::size_t i = 0; i < masters.size(); ++i) {
        const bool special = !(std::fabs(masters[i]) < FLT_MAX);
        ASSERT_EQ(rounded.bits[i], special ? nearest_element(format, masters[i]) : ordinary.bits[i])
            << i << ": " << masters[i];
        overflows += special && std::isfinite(masters[i]);
      }
      EXPECT_EQ(rounded.overflows, overflows);
      EXPECT_GT(overflows, places.size());
    }
  }
}

TEST_P(RoundingOnEveryTarget, IsOffUnlessAskedForAndLeavesFp32Alone) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 4);
  for (const Format format : kShort) {
    const std::vector<float> masters = values(format, random, 1000);
    const Rounded nearest = round_all(format, masters, 9, 0, false);
    for (std::size_t i = 0; i < masters.size(); ++i) {
      ASSERT_EQ(nearest.bits[i], nearest_element(format, masters[i]));
    }
  }
  std::vector<float> masters = values(Format::bf16, random, 1000);
  std::vector<float> weights(masters.size());
  const std::vector<std::uint16_t> grad(masters.size());
  const UpdateShard shard = {.grad = {grad.data(), Format::f16},
                             .weight = {weights.data(), Format::f32},
                             .param = masters,
                             .state = {}};
  (void)update(shard, SgdScalars{.coeff = 1.0F}, {.rounding = {true, 9}});
  EXPECT_TRUE(same_bits(weights, masters));
}

}  // namespace
}  // namespace outboard::simd::testing
