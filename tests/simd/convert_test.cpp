// SPDX-License-Identifier: Apache-2.0
#include "simd/convert.hpp"

#include "tests/simd/simd_support.hpp"

namespace outboard::simd::testing {
namespace {

class ConvertOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(ConvertOnEveryTarget);

bool is_nan(std::uint16_t half) {
  return (half & 0x7FFFU) > 0x7C00U;
}

/// Nearest even by the value alone: no bit of the float is looked at.
std::uint16_t nearest_half(float value) {
  const std::uint32_t sign = std::signbit(value) ? 0x8000U : 0U;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7E00U);
  if (magnitude >= 65520.0) return static_cast<std::uint16_t>(sign | 0x7C00U);
  const int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
  // A carry out of the fraction goes into the exponent, as it should.
  const auto fraction =
      static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  const std::uint32_t biased = fraction < 1024U ? 0U : static_cast<std::uint32_t>(exponent + 15);
  const std::uint32_t bits = biased == 0U ? fraction : (biased << 10) + (fraction - 1024U);
  return static_cast<std::uint16_t>(sign | bits);
}

void expect_nearest(const std::vector<float>& values) {
  std::vector<std::uint16_t> halves(values.size());
  const std::uint64_t overflows = float_to_half(values, halves);
  std::uint64_t expected_overflows = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t expected = nearest_half(values[i]);
    expected_overflows += std::isfinite(values[i]) && (expected & 0x7FFFU) == 0x7C00U;
    if (is_nan(expected)) {
      ASSERT_TRUE(is_nan(halves[i]) && (halves[i] & 0x0200U) != 0) << i;
      ASSERT_EQ(halves[i] & 0x8000U, expected & 0x8000U) << i;
    } else {
      ASSERT_EQ(halves[i], expected) << values[i] << " at " << i;
    }
  }
  EXPECT_EQ(overflows, expected_overflows);
}

std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> halves(65'536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  return halves;
}

TEST_P(ConvertOnEveryTarget, EveryHalfBecomesItsNumber) {
  const std::vector<std::uint16_t> halves = all_halves();
  std::vector<float> floats(halves.size());
  half_to_float(halves, floats);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const double expected = reference::half_value(halves[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(floats[i])) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(floats[i]), expected) << i;
    ASSERT_EQ(std::signbit(floats[i]), i >= 0x8000) << i;
  }
}

TEST_P(ConvertOnEveryTarget, EveryHalfComesBack) {
  const std::vector<std::uint16_t> halves = all_halves();
  std::vector<float> floats(halves.size());
  std::vector<std::uint16_t> back(halves.size());
  half_to_float(halves, floats);
  EXPECT_EQ(float_to_half(floats, back), 0U);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    // NaN becomes quiet; everything else is as it was.
    const std::uint32_t quiet = is_nan(halves[i]) ? 0x0200U : 0U;
    ASSERT_EQ(back[i], halves[i] | quiet);
  }
}

TEST_P(ConvertOnEveryTarget, FloatsEvenlyOverAllBitPatternsRoundToNearestEven) {
  SCOPED_TRACE(seed_text());
  const std::uint64_t first = test_seed() % 4093;
  std::vector<float> values;
  for (std::uint64_t bits = first; bits < (std::uint64_t{1} << 32); bits += 4093) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  expect_nearest(values);
}

TEST_P(ConvertOnEveryTarget, EveryRoundingBorderAndItsNeighboursRoundToNearestEven) {
  std::vector<float> values;
  for (std::uint16_t half = 0; half < 0x7C00; ++half) {
    const double low = reference::half_value(half);
    // Above the largest half, the border is where the next one would be.
    const double high =
        half == 0x7BFF ? 65536.0 : reference::half_value(static_cast<std::uint16_t>(half + 1));
    const auto middle = static_cast<float>((low + high) / 2.0);
    for (const float value : {static_cast<float>(low), std::nextafter(middle, 0.0F), middle,
                              std::nextafter(middle, INFINITY)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  for (const float value : {INFINITY, NAN, FLT_MAX, FLT_MIN, FLT_TRUE_MIN, 70000.0F}) {
    values.push_back(value);
    values.push_back(-value);
  }
  expect_nearest(values);
}

TEST(ConvertTargets, AgreeBitForBitOnNaNsAsWell) {
  const std::vector<std::uint16_t> halves = all_halves();
  std::vector<float> floats;
  for (std::uint64_t bits = 0x7F7FFFF0; bits < 0x80000000; bits += 1021) {
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    floats.push_back(-floats.back());
  }
  std::vector<float> first_floats;
  std::vector<std::uint16_t> first_halves;
  for (const std::string& target : supported_targets()) {
    ASSERT_TRUE(force_target(target));
    std::vector<float> to_floats(halves.size());
    std::vector<std::uint16_t> to_halves(floats.size());
    half_to_float(halves, to_floats);
    (void)float_to_half(floats, to_halves);
    if (first_floats.empty()) first_floats = to_floats, first_halves = to_halves;
    EXPECT_TRUE(same_bits(to_floats, first_floats)) << target;
    EXPECT_TRUE(same_bits(to_halves, first_halves)) << target;
  }
  ASSERT_TRUE(force_target(""));
}

template <class... Where>
void expect_same_when_guarded(std::size_t size, Where... where) {
  GuardedArray<std::uint16_t> half(size, where...);
  GuardedArray<float> value(size, where...);
  GuardedArray<std::uint16_t> back(size, where...);
  for (std::size_t i = 0; i < size; ++i) half.span()[i] = static_cast<std::uint16_t>(i * 7);
  half_to_float(half.span(), value.span());
  EXPECT_EQ(float_to_half(value.span(), back.span()), 0U);
  for (std::size_t i = 0; i < size; ++i) {
    ASSERT_EQ(static_cast<double>(value.span()[i]), reference::half_value(half.span()[i])) << i;
  }
  EXPECT_TRUE(same_bits(half.span(), back.span()));
  EXPECT_TRUE(half.intact() && value.intact() && back.intact());
}

TEST_P(ConvertOnEveryTarget, AnyLengthAtAnyOffsetAndAgainstAGuardPage) {
  for (const std::size_t size : kLengths) {
    SCOPED_TRACE("length " + std::to_string(size));
    expect_same_when_guarded(size);
    for (std::size_t offset = 0; offset < 16; ++offset) expect_same_when_guarded(size, offset);
  }
}

}  // namespace
}  // namespace outboard::simd::testing
