// SPDX-License-Identifier: Apache-2.0
#include "simd/reduce.hpp"

#include <utility>

#include "tests/simd/simd_support.hpp"

namespace outboard::simd::testing {
namespace {

class ReduceOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(ReduceOnEveryTarget);

double square(std::uint16_t half) {
  const double value = reference::half_value(half);
  return std::isfinite(value) ? value * value : 0.0;
}

/// The tree in words: 64 lanes, folded by halves.
double plain_block(std::span<const std::uint16_t> block) {
  std::vector<double> padded(kReduceBlockElems, 0.0);
  std::ranges::transform(block, padded.begin(), square);
  std::vector<double> lane(64, 0.0);
  for (std::size_t i = 0; i < padded.size(); ++i) lane[i % 64] += padded[i];
  while (lane.size() > 1) {
    const std::size_t half = lane.size() / 2;
    for (std::size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
    lane.resize(half);
  }
  return lane[0];
}

double plain_sum(std::span<const std::uint16_t> grad) {
  double sum = 0.0;
  for (std::size_t first = 0; first < grad.size(); first += kReduceBlockElems) {
    sum += plain_block(
        grad.subspan(first, std::min<std::size_t>(kReduceBlockElems, grad.size() - first)));
  }
  return sum;
}

std::uint64_t bits(double value) {
  return std::bit_cast<std::uint64_t>(value);
}

std::vector<std::uint16_t> finite_halves(Random& random, std::size_t size) {
  std::vector<std::uint16_t> halves(size);
  for (std::uint16_t& half : halves) half = random.finite_half();
  return halves;
}

std::vector<std::size_t> reduce_lengths() {
  std::vector<std::size_t> lengths = kLengths;
  lengths.insert(lengths.end(), {127, 4031, 4032, 4095, 4096, 8192, 12'289, 50'001});
  return lengths;
}

TEST_P(ReduceOnEveryTarget, SumIsThePlainTreeToTheBit) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed());
  for (const std::size_t size : reduce_lengths()) {
    const std::vector<std::uint16_t> grad = finite_halves(random, size);
    const GradientReduction result = reduce_gradient(grad);
    EXPECT_EQ(bits(result.sum_of_squares), bits(plain_sum(grad))) << "length " << size;
    EXPECT_EQ(result.non_finite, 0U);
  }
}

TEST_P(ReduceOnEveryTarget, SumIsCloseToTheExactOne) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 1);
  for (const std::size_t size : reduce_lengths()) {
    const std::vector<std::uint16_t> grad = finite_halves(random, size);
    long double exact = 0.0L;
    for (const std::uint16_t half : grad) exact += static_cast<long double>(square(half));
    // An element passes through 64 additions of its lane, 6 of the fold, one for each block.
    const auto additions = static_cast<long double>(70 + size / kReduceBlockElems + 1);
    const auto sum = static_cast<long double>(reduce_gradient(grad).sum_of_squares);
    EXPECT_LE(std::fabs(sum - exact), additions * 0x1p-53L * exact) << "length " << size;
  }
}

TEST_P(ReduceOnEveryTarget, OneNonFiniteElementIsFoundAnywhere) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 2);
  const std::vector<std::uint16_t> specials = {0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFE00, 0xFFFF};
  for (const std::size_t size : {1U, 63U, 64U, 65U, 130U, 4095U, 4096U, 4097U, 9001U}) {
    std::vector<std::uint16_t> grad = finite_halves(random, size);
    for (std::size_t at = 0; at<size; at += size> 200 ? 1 + random.below(60) : 1) {
      const std::uint16_t special = random.pick(specials);
      const std::uint16_t kept = std::exchange(grad[at], special);
      const GradientReduction result = reduce_gradient(grad);
      ASSERT_EQ(result.non_finite, 1U) << size << " at " << at;
      ASSERT_EQ(result.first_non_finite, at);
      ASSERT_EQ(result.first_is_nan, (special & 0x3FFU) != 0);
      ASSERT_EQ(bits(result.sum_of_squares), bits(plain_sum(grad)));
      grad[at] = kept;
    }
  }
}

TEST_P(ReduceOnEveryTarget, AllNonFiniteElementsAreCountedAndTheFirstIsNamed) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 3);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::uint16_t> grad(1 + random.below(20'000));
    for (std::uint16_t& half : grad) {
      half = random.below(500) == 0 ? static_cast<std::uint16_t>(random.bits() | 0x7C00U)
                                    : random.finite_half();
    }
    const auto bad = [](std::uint16_t half) { return !std::isfinite(reference::half_value(half)); };
    const GradientReduction result = reduce_gradient(grad);
    ASSERT_EQ(result.non_finite, static_cast<std::uint64_t>(std::ranges::count_if(grad, bad)));
    if (result.non_finite > 0) {
      const auto first = std::ranges::find_if(grad, bad);
      ASSERT_EQ(result.first_non_finite, static_cast<std::uint64_t>(first - grad.begin()));
      ASSERT_EQ(result.first_is_nan, std::isnan(reference::half_value(*first)));
    }
    ASSERT_EQ(bits(result.sum_of_squares), bits(plain_sum(grad)));
  }
}

TEST_P(ReduceOnEveryTarget, LargestAndSmallestHalvesSumExactly) {
  const std::vector<std::uint16_t> largest(100'000, 0x7BFF);
  EXPECT_EQ(reduce_gradient(largest).sum_of_squares, 65504.0 * 65504.0 * 100'000.0);
  const std::vector<std::uint16_t> smallest(100'000, 0x8001);
  EXPECT_EQ(reduce_gradient(smallest).sum_of_squares, 0x1p-48 * 100'000.0);
}

TEST_P(ReduceOnEveryTarget, AnyLengthAtAnyOffsetAndAgainstAGuardPage) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 4);
  for (const std::size_t size : kLengths) {
    const std::vector<std::uint16_t> grad = finite_halves(random, size);
    GuardedArray<std::uint16_t> at_end(size);
    std::ranges::copy(grad, at_end.span().begin());
    EXPECT_EQ(bits(reduce_gradient(at_end.span()).sum_of_squares), bits(plain_sum(grad)));
    for (std::size_t offset = 0; offset < 16; ++offset) {
      GuardedArray<std::uint16_t> moved(size, offset);
      std::ranges::copy(grad, moved.span().begin());
      const GradientReduction result = reduce_gradient(moved.span());
      EXPECT_EQ(bits(result.sum_of_squares), bits(plain_sum(grad)));
      EXPECT_EQ(result.non_finite, 0U);
    }
  }
}

}  // namespace
}  // namespace outboard::simd::testing
