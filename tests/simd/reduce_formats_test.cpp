// SPDX-License-Identifier: Apache-2.0
/// Reduction and accumulation in every format.
#include "simd/accumulate.hpp"
#include "simd/reduce.hpp"
#include "tests/simd/update_support.hpp"

namespace outboard::simd::testing {
namespace {

class FormatsOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(FormatsOnEveryTarget);

/// `size` elements of one format at any offset.
struct Gradients {
  Gradients(std::size_t size, Format of, std::size_t at)
      : format(of), count(size), offset(at), bytes((size + at) * format_bytes(of)) {}
  [[nodiscard]] ConstElements elements() const {
    return {bytes.data() + offset * format_bytes(format), format};
  }
  void set(std::size_t i, std::uint32_t bits) {
    std::memcpy(bytes.data() + (offset + i) * format_bytes(format), &bits, format_bytes(format));
  }
  [[nodiscard]] double value(std::size_t i) const {
    return reference::element_value(elements(), i);
  }
  Format format;
  std::size_t count, offset;
  std::vector<std::byte> bytes;
};

/// Infinity's bits; one more is a NaN.
std::uint32_t infinite_bits(Format format) {
  constexpr std::array kBits = {0x7C00U, 0x7F80U, 0x7F800000U};
  return kBits[static_cast<std::size_t>(format)];
}
std::uint32_t sign_bit(Format format) {
  return format == Format::f32 ? 0x80000000U : 0x8000U;
}

/// Any element: all exponents, subnormals, and now and then something that is not finite.
std::uint32_t any_bits(Random& random, Format format, bool finite) {
  for (;;) {
    const auto bits = static_cast<std::uint32_t>(random.bits());
    const std::uint32_t kept = format == Format::f32 ? bits : bits & 0xFFFFU;
    const std::uint32_t exponent = infinite_bits(format);
    if (!finite || (kept & exponent) != exponent) return kept;
  }
}

/// The tree in words: blocks of 4,096, 64 lanes, folded by halves.
double plain_tree(const Gradients& grad) {
  double total = 0.0;
  for (std::size_t first = 0; first < grad.count; first += kReduceBlockElems) {
    std::array<double, 64> lane = {};
    for (std::size_t i = 0; i < kReduceBlockElems && first + i < grad.count; ++i) {
      const double value = grad.value(first + i);
      lane[i % 64] += std::isfinite(value) ? value * value : 0.0;
    }
    for (std::size_t half = 32; half > 0; half /= 2) {
      for (std::size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
    }
    total += lane[0];
  }
  return total;
}

void expect_reduction(const Gradients& grad) {
  const GradientReduction found = reduce_gradient(grad.elements(), grad.count);
  ASSERT_EQ(std::bit_cast<std::uint64_t>(found.sum_of_squares),
            std::bit_cast<std::uint64_t>(plain_tree(grad)));
  std::uint64_t bad = 0;
  for (std::size_t i = 0; i < grad.count; ++i) {
    if (std::isfinite(grad.value(i)) || bad++ > 0) continue;
    ASSERT_EQ(found.first_non_finite, i);
    ASSERT_EQ(found.first_is_nan, std::isnan(grad.value(i)));
  }
  ASSERT_EQ(found.non_finite, bad);
}

TEST_P(FormatsOnEveryTarget, ReductionIsThePlainTreeToTheBitInEveryFormat) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed());
  for (const Format format : kFormats) {
    for (const std::size_t size : {0U, 1U, 63U, 64U, 65U, 1000U, 4095U, 4096U, 4097U, 12'345U}) {
      for (const bool finite : {true, false}) {
        SCOPED_TRACE(std::string(format_name(format)) + ", " + std::to_string(size));
        Gradients grad(size, format, random.below(16));
        for (std::size_t i = 0; i < size; ++i) {
          grad.set(i, any_bits(random, format, finite || random.below(300) != 0));
        }
        ASSERT_NO_FATAL_FAILURE(expect_reduction(grad));
      }
    }
  }
}

TEST_P(FormatsOnEveryTarget, OneNonFiniteElementOfAThousandIsNamedInEveryFormat) {
  for (const Format format : kFormats) {
    const std::uint32_t infinite = infinite_bits(format);
    struct {
      std::size_t at;
      std::uint32_t bits;
      bool is_nan;
    } const trials[] = {
        {999, infinite, false}, {0, infinite + 1, true}, {512, infinite | sign_bit(format), false}};
    for (const auto& trial : trials) {
      Gradients grad(1000, format, 3);
      grad.set(trial.at, trial.bits);
      const GradientReduction found = reduce_gradient(grad.elements(), grad.count);
      EXPECT_EQ(found.non_finite, 1U);
      EXPECT_EQ(found.first_non_finite, trial.at);
      EXPECT_EQ(found.first_is_nan, trial.is_nan);
      EXPECT_EQ(found.sum_of_squares, 0.0);
    }
  }
}

TEST_P(FormatsOnEveryTarget, SquaresBeyondFloatsAreExact) {
  Gradients huge(100, Format::f32, 0), tiny(100, Format::bf16, 0);
  for (std::size_t i = 0; i < 100; ++i) {
    huge.set(i, std::bit_cast<std::uint32_t>(0x1p100F));
    tiny.set(i, 0x0001);  // 2^-133
  }
  EXPECT_EQ(reduce_gradient(huge.elements(), 100).sum_of_squares, 100.0 * 0x1p200);
  EXPECT_EQ(reduce_gradient(huge.elements(), 100).non_finite, 0U);
  EXPECT_EQ(reduce_gradient(tiny.elements(), 100).sum_of_squares, 100.0 * 0x1p-266);
}

TEST_P(FormatsOnEveryTarget, SumsAreThoseOfTheNumbersInEveryFormat) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 1);
  for (const Format format : kFormats) {
    for (const std::size_t size : {0U, 1U, 7U, 15U, 16U, 17U, 65U, 1025U}) {
      std::vector<float> sum(size, NAN), expected(size);
      for (int call = 0; call < 3; ++call) {
        Gradients grad(size, format, random.below(16));
        for (std::size_t i = 0; i < size; ++i) grad.set(i, finite_bits(random, format));
        accumulate({grad.elements(), sum, call == 0});
        for (std::size_t i = 0; i < size; ++i) {
          const auto value = static_cast<float>(grad.value(i));
          expected[i] = call == 0 ? value : expected[i] + value;
        }
        ASSERT_TRUE(same_bits(sum, expected)) << format_name(format) << ", " << size;
      }
    }
  }
}

}  // namespace
}  // namespace outboard::simd::testing
