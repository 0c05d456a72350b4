// SPDX-License-Identifier: Apache-2.0
/// Row kernels and worker threads of the GPT example's host operators.
#include "host_rows.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "common/random.hpp"
#include "workers.hpp"

namespace gpt {
namespace {

using Floats = std::vector<float>;

Floats random_floats(std::size_t count, example::Random& random) {
  Floats floats(count);
  for (float& value : floats) value = static_cast<float>(8.0 * random.unit() - 4.0);
  return floats;
}

std::vector<std::uint32_t> bits_of(const Floats& floats) {
  std::vector<std::uint32_t> bits;
  for (const float value : floats) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

/// Everything that a set of kernels makes of the same rows.
Floats everything(const RowKernels& k, std::size_t count) {
  example::Random random(count);
  const Floats x = random_floats(count, random), y = random_floats(count, random);
  const Floats z = random_floats(count, random);
  Floats all;
  const auto keep = [&all](const Floats& row) { all.insert(all.end(), row.begin(), row.end()); };
  const auto changed = [&](auto&& change) {
    Floats row = z;
    change(row.data());
    keep(row);
  };
  changed([&](float* row) { k.add(x.data(), row, count); });
  changed([&](float* row) { k.scale(1.7f, row, count); });
  changed([&](float* row) { all.push_back(k.exp_shifted(0.3f, row, count)); });
  changed([&](float* row) { k.softmax(0.3f, 1.3f, row, count); });
  changed([&](float* row) { k.softmax_backward(x.data(), 0.7f, row, count); });
  changed([&](float* row) { k.normalize({0.1f, 2.3f}, row, count); });
  changed([&](float* row) { k.gain_bias(x.data(), y.data(), row, count); });
  changed([&](float* row) { k.normalize_backward(x.data(), y.data(), 0.9f, row, count); });
  changed([&](float* row) { k.add_product(x.data(), y.data(), row, count); });
  changed([&](float* row) { k.gelu(row, count); });
  changed([&](float* row) { k.gelu_backward(x.data(), row, count); });
  const Moments moments = k.moments(x.data(), count);
  keep({k.largest(x.data(), count), k.sum_of_exp(x.data(), 0.2f, count), moments.mean,
        moments.inverse_deviation});
  return all;
}

TEST(GptRows, EverySetOfKernelsGivesTheSameBits) {
  const RowKernels& plain = *all_row_kernels()[0].kernels;
  for (const std::size_t count : {1u, 2u, 15u, 16u, 17u, 31u, 64u, 100u, 1000u, 1037u}) {
    const auto want = bits_of(everything(plain, count));
    for (std::size_t set = 1; set < kRowKernelSets; ++set) {
      const NamedRowKernels& other = all_row_kernels()[set];
      if (other.kernels == nullptr) continue;
      EXPECT_EQ(bits_of(everything(*other.kernels, count)), want) << other.name << " " << count;
    }
  }
}

TEST(GptRows, ExponentialIsAccurateToAMillionth) {
  double worst = 0.0;
  for (float x = -86.9f; x < 87.9f; x += 0.0037f) {
    float y = x;
    row_kernels().softmax(0.0f, 1.0f, &y, 1);
    const double want = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(y) / want - 1.0));
  }
  EXPECT_LT(worst, 2e-7);
}

TEST(GptRows, ExponentialOfOddValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Floats x{-kInf, -1e30f, -100.0f, 0.0f, std::nanf(""), kInf};
  row_kernels().softmax(0.0f, 1.0f, x.data(), x.size());
  for (int i = 0; i < 3; ++i) EXPECT_LT(x[static_cast<std::size_t>(i)], 2e-38f) << i;
  EXPECT_EQ(x[3], 1.0f);
  EXPECT_TRUE(std::isnan(x[4]));
  EXPECT_GT(x[5], 1e38f);
}

TEST(GptRows, LargestIsFoundWhereverItIs) {
  for (std::size_t count = 1; count < 70; ++count) {
    for (std::size_t at = 0; at < count; ++at) {
      Floats x(count, -2.0f);
      x[at] = -1.0f;
      ASSERT_EQ(row_kernels().largest(x.data(), count), -1.0f) << count << " " << at;
    }
  }
}

TEST(GptWorkers, RunEveryTaskOnce) {
  for (const std::size_t threads : {1u, 2u, 4u}) {
    Workers workers(threads);
    EXPECT_EQ(workers.count(), threads);
    for (const std::size_t tasks : {0u, 1u, 2u, 3u, 100u}) {
      for (int repeat = 0; repeat < 50; ++repeat) {
        std::vector<std::atomic<int>> runs(tasks);
        workers.run(tasks, [&](std::size_t task, std::size_t thread) {
          ASSERT_LT(thread, threads);
          ++runs[task];
        });
        for (const auto& count : runs) ASSERT_EQ(count, 1);
      }
    }
  }
}

}  // namespace
}  // namespace gpt
