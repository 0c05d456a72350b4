// SPDX-License-Identifier: Apache-2.0
#include "common/halves.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "outboard/half.hpp"

namespace example {
namespace {

TEST(Halves, WidenEqualsTheOneValueFunctionForEveryHalf) {
  std::vector<Half> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<Half>(i);
  std::vector<float> floats(halves.size());
  widen(halves, floats);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]),
              std::bit_cast<std::uint32_t>(outboard::half_to_float(halves[i])))
        << i;
  }
}

TEST(Halves, NarrowEqualsTheOneValueFunctionOnAStrideOfAllFloats) {
  std::vector<float> floats;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 4093) {
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  std::vector<Half> halves(floats.size());
  narrow(floats, halves);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(halves[i], outboard::half_from_float(floats[i])) << floats[i];
  }
}

TEST(Halves, AnyLengthLeavesItsNeighboursAlone) {
  for (std::size_t count = 0; count < 70; ++count) {
    const std::vector<float> ones(count + 2, 1.0f);
    std::vector<Half> halves(count + 2, 0x1234);
    narrow(std::span(ones).subspan(1, count), std::span(halves).subspan(1, count));
    EXPECT_EQ(halves.front(), 0x1234);
    EXPECT_EQ(halves.back(), 0x1234);
    for (std::size_t i = 1; i <= count; ++i) ASSERT_EQ(halves[i], 0x3C00);
    std::vector<float> floats(count + 2, -5.0f);
    widen(std::span(halves).subspan(1, count), std::span(floats).subspan(1, count));
    EXPECT_EQ(floats.front(), -5.0f);
    EXPECT_EQ(floats.back(), -5.0f);
    for (std::size_t i = 1; i <= count; ++i) ASSERT_EQ(floats[i], 1.0f);
  }
}

}  // namespace
}  // namespace example
