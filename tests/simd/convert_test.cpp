// SPDX-License-Identifier: Apache-2.0
#include "simd/convert.hpp"

#include "tests/simd/update_support.hpp"

namespace outboard::simd::testing {
namespace {

class ConvertOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(ConvertOnEveryTarget);

bool is_nan(Format format, std::uint16_t bits) {
  return (bits & 0x7FFFU) > (format == Format::f16 ? 0x7C00U : 0x7F80U);
}

void expect_nearest(Format format, const std::vector<float>& values) {
  std::vector<std::uint16_t> rounded(values.size());
  const std::uint64_t overflows = from_float(values, {rounded.data(), format});
  std::uint64_t expected_overflows = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto expected = static_cast<std::uint16_t>(nearest_element(format, values[i]));
    expected_overflows += std::isfinite(values[i]) && std::isinf(value_of(format, expected));
    if (is_nan(format, expected)) {
      // Quiet, with the sign it had; the payload may be anything.
      ASSERT_EQ(rounded[i] & expected, expected) << i;
    } else {
      ASSERT_EQ(rounded[i], expected) << values[i] << " at " << i;
    }
  }
  EXPECT_EQ(overflows, expected_overflows);
}

std::vector<std::uint16_t> all_bits() {
  std::vector<std::uint16_t> all(65'536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return all;
}

TEST_P(ConvertOnEveryTarget, EveryElementBecomesItsNumber) {
  const std::vector<std::uint16_t> all = all_bits();
  for (const Format format : kShort) {
    std::vector<float> floats(all.size());
    to_float({all.data(), format}, floats);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double expected = value_of(format, all[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(floats[i])) << i;
        continue;
      }
      ASSERT_EQ(static_cast<double>(floats[i]), expected) << i;
      ASSERT_EQ(std::signbit(floats[i]), i >= 0x8000) << i;
    }
  }
}

TEST_P(ConvertOnEveryTarget, EveryElementComesBack) {
  const std::vector<std::uint16_t> all = all_bits();
  for (const Format format : kShort) {
    std::vector<float> floats(all.size());
    std::vector<std::uint16_t> back(all.size());
    to_float({all.data(), format}, floats);
    EXPECT_EQ(from_float(floats, {back.data(), format}), 0U);
    for (std::size_t i = 0; i < all.size(); ++i) {
      // NaN becomes quiet; everything else is as it was.
      const std::uint32_t quiet = format == Format::f16 ? 0x0200U : 0x0040U;
      ASSERT_EQ(back[i], is_nan(format, all[i]) ? all[i] | quiet : all[i]);
    }
  }
}

TEST_P(ConvertOnEveryTarget, FloatsEvenlyOverAllBitPatternsRoundToNearestEven) {
  SCOPED_TRACE(seed_text());
  const std::uint64_t first = test_seed() % 4093;
  std::vector<float> values;
  for (std::uint64_t bits = first; bits < (std::uint64_t{1} << 32); bits += 4093) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const Format format : kShort) expect_nearest(format, values);
}

TEST_P(ConvertOnEveryTarget, EveryRoundingBorderAndItsNeighboursRoundToNearestEven) {
  for (const Format format : kShort) {
    const std::uint16_t largest = format == Format::f16 ? 0x7BFF : 0x7F7F;
    std::vector<float> values = {INFINITY, NAN, FLT_MAX, FLT_MIN, FLT_TRUE_MIN, 70000.0F};
    for (std::uint16_t bits = 0; bits <= largest; ++bits) {
      const double low = value_of(format, bits);
      // Above the largest element, the border is where the next one would be.
      const double high = bits == largest
                              ? 2.0 * low - value_of(format, static_cast<std::uint16_t>(bits - 1))
                              : value_of(format, static_cast<std::uint16_t>(bits + 1));
      const auto middle = static_cast<float>(low + (high - low) / 2.0);
      values.insert(values.end(), {static_cast<float>(low), std::nextafter(middle, 0.0F), middle,
                                   std::nextafter(middle, INFINITY)});
    }
    const std::size_t count = values.size();
    for (std::size_t i = 0; i < count; ++i) values.push_back(-values[i]);
    expect_nearest(format, values);
  }
}

TEST(ConvertTargets, AgreeBitForBitOnNaNsAsWell) {
  const std::vector<std::uint16_t> all = all_bits();
  std::vector<float> floats;
  for (std::uint64_t bits = 0x7F7FFFF0; bits < 0x80000000; bits += 1021) {
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    floats.push_back(-floats.back());
  }
  for (const Format format : kShort) {
    std::vector<float> first_floats;
    std::vector<std::uint16_t> first_elements;
    for (const std::string& target : supported_targets()) {
      ASSERT_TRUE(force_target(target));
      std::vector<float> to_floats(all.size());
      std::vector<std::uint16_t> to_elements(floats.size());
      to_float({all.data(), format}, to_floats);
      (void)from_float(floats, {to_elements.data(), format});
      if (first_floats.empty()) first_floats = to_floats, first_elements = to_elements;
      EXPECT_TRUE(same_bits(to_floats, first_floats)) << target;
      EXPECT_TRUE(same_bits(to_elements, first_elements)) << target;
    }
  }
  ASSERT_TRUE(force_target(""));
}

template <class... Where>
void expect_same_when_guarded(Format format, std::size_t size, Where... where) {
  GuardedArray<std::uint16_t> bits(size, where...);
  GuardedArray<float> value(size, where...);
  GuardedArray<std::uint16_t> back(size, where...);
  for (std::size_t i = 0; i < size; ++i) bits.span()[i] = static_cast<std::uint16_t>(i * 7);
  to_float({bits.span().data(), format}, value.span());
  EXPECT_EQ(from_float(value.span(), {back.span().data(), format}), 0U);
  for (std::size_t i = 0; i < size; ++i) {
    ASSERT_EQ(static_cast<double>(value.span()[i]), value_of(format, bits.span()[i])) << i;
  }
  EXPECT_TRUE(same_bits(bits.span(), back.span()));
  EXPECT_TRUE(bits.intact() && value.intact() && back.intact());
}

TEST_P(ConvertOnEveryTarget, AnyLengthAtAnyOffsetAndAgainstAGuardPage) {
  for (const std::size_t size : kLengths) {
    SCOPED_TRACE("length " + std::to_string(size));
    for (const Format format : kShort) {
      expect_same_when_guarded(format, size);
      for (std::size_t offset = 0; offset < 16; ++offset) {
        expect_same_when_guarded(format, size, offset);
      }
    }
  }
}

TEST_P(ConvertOnEveryTarget, Fp32IsCopied) {
  std::vector<float> values = {1.0F, -0.0F, FLT_TRUE_MIN, INFINITY, FLT_MAX, 3.0F, 0.1F};
  std::vector<float> there(values.size()), back(values.size());
  EXPECT_EQ(from_float(values, {there.data(), Format::f32}), 0U);
  to_float({there.data(), Format::f32}, back);
  EXPECT_TRUE(same_bits(there, values) && same_bits(back, values));
}

}  // namespace
}  // namespace outboard::simd::testing
