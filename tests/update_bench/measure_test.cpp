// SPDX-License-Identifier: Apache-2.0
#include "update_bench/measure.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <vector>

namespace outboard::update_bench {
namespace {

/// A short measurement on a made-up machine of two nodes.
Measurement measured(Workload workload) {
  workload.repeats = kMinRepeats;
  workload.repeat_elems = 1;
  const topology::Machine machine = topology::synthetic("numa:2 core:1 pu:1");
  Crew crew(machine, topology::choose_threads(machine, 0, 0));
  return measure(machine, crew, workload);
}

Workload small() {
  Workload workload;
  workload.params = 100'000;
  return workload;
}

TEST(Measure, TakesEveryRepeatOfRoofAndUpdate) {
  const Measurement m = measured(small());
  EXPECT_EQ(m.params, 100'000U);
  EXPECT_EQ(m.passes, 1U);
  EXPECT_EQ(m.update.size(), kMinRepeats);
  EXPECT_EQ(m.roof.size(), kMinRepeats);
  EXPECT_EQ(m.share_of_roof().size(), kMinRepeats);
  EXPECT_TRUE(m.one_tensor.empty());
  EXPECT_TRUE(m.subnormal.empty());
  EXPECT_TRUE(m.check.equal);
}

TEST(Measure, ShareIsTheRatioOfRates) {
  Measurement m;
  m.bytes_per_param = 28;
  m.update = {1.4, 0.7};
  m.roof = {1.2, 0.3};
  // 28 B in 1.4 ns is 20 GB/s, 24 B in 1.2 ns as well; 40 against 80.
  const auto shares = m.share_of_roof();
  EXPECT_DOUBLE_EQ(shares[0], 1.0);
  EXPECT_DOUBLE_EQ(shares[1], 0.5);
}

TEST(Measure, ComparesWhatWasAskedFor) {
  Workload workload = small();
  workload.tensors = 40;
  workload.subnormal = true;
  const Measurement m = measured(workload);
  EXPECT_EQ(m.one_tensor.size(), kMinRepeats);
  EXPECT_EQ(m.normal.size(), kMinRepeats);
  EXPECT_EQ(m.subnormal.size(), kMinRepeats);
  EXPECT_TRUE(m.check.equal);
}

TEST(Fill, SubnormalMeansEveryValueOfEveryFormat) {
  for (const simd::Format format : {simd::Format::f16, simd::Format::bf16, simd::Format::f32}) {
    constexpr std::size_t kSize = 4'096;
    std::vector<float> floats(3 * kSize);
    std::vector<std::uint32_t> grad(kSize);
    const std::span<float> all(floats);
    const simd::Elements slot{grad.data(), format};
    const View view{all.first(kSize), {all.subspan(kSize, kSize), all.last(kSize)}, slot, slot};
    fill(view, 7, Values::subnormal);
    for (const float value : floats) {
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
      ASSERT_TRUE(magnitude != 0 && magnitude < 0x800000U) << value;
    }
    const std::uint32_t least_normal = format == simd::Format::f16    ? 0x400U
                                       : format == simd::Format::bf16 ? 0x80U
                                                                      : 0x800000U;
    for (std::size_t i = 0; i < kSize; ++i) {
      const std::uint32_t bits = format == simd::Format::f32
                                     ? grad[i]
                                     : reinterpret_cast<const std::uint16_t*>(grad.data())[i];
      ASSERT_TRUE(bits != 0 && bits < least_normal) << bits;
    }
  }
}

TEST(Fill, DoesNotDependOnHowItIsSplit) {
  constexpr std::size_t kSize = 1'000;
  const auto filled = [](std::size_t border) {
    std::vector<float> floats(3 * kSize);
    std::vector<std::uint16_t> grad(kSize);
    const std::span<float> all(floats);
    const simd::Elements slot{grad.data(), simd::Format::f16};
    const View view{all.first(kSize), {all.subspan(kSize, kSize), all.last(kSize)}, slot, slot};
    fill(view.part(0, border), 0, Values::normal);
    fill(view.part(border, kSize), border, Values::normal);
    return std::pair(floats, grad);
  };
  EXPECT_EQ(filled(0), filled(333));
}

}  // namespace
}  // namespace outboard::update_bench
