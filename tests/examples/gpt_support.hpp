// SPDX-License-Identifier: Apache-2.0
/// Made-up tensors, and how far an FP16 result may be from the exact one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/halves.hpp"
#include "common/random.hpp"
#include "gpt_reference.hpp"
#include "ops.hpp"
#include "outboard/half.hpp"

namespace gpt::test {

using reference::Doubles;
using Halves = std::vector<Half>;

/// FP16 values uniform in [-bound, bound].
inline Halves random_halves(std::size_t count, double bound, example::Random& random) {
  Halves halves(count);
  for (Half& half : halves) {
    half = outboard::half_from_float(static_cast<float>(bound * (2.0 * random.unit() - 1.0)));
  }
  return halves;
}

/// Gains around 1.
inline Halves random_gains(std::size_t count, example::Random& random) {
  Halves halves = random_halves(count, 0.5, random);
  for (Half& half : halves) {
    half = outboard::half_from_float(1.0f + outboard::half_to_float(half));
  }
  return halves;
}

inline Doubles exact(std::span<const Half> halves) {
  Doubles doubles;
  for (const Half half : halves) {
    doubles.push_back(static_cast<double>(outboard::half_to_float(half)));
  }
  return doubles;
}

/// Values that nothing may be left of.
inline Halves unwritten(std::size_t count) {
  return Halves(count, 0x7E00);
}

inline std::vector<Token> random_tokens(std::size_t count, std::size_t vocab,
                                        example::Random& random) {
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random.below(vocab));
  return tokens;
}

/// Each element within half a unit in the last place of FP16 (2^-11 of it, 2^-25 below 2^-14) and
/// `sum_error`, what FP32 arithmetic may lose before the one rounding.
inline void expect_rounded(std::span<const Half> got, const Doubles& want, double sum_error,
                           const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double value = static_cast<double>(outboard::half_to_float(got[i]));
    ASSERT_NEAR(value, want[i], std::abs(want[i]) * 0x1p-11 + 0x1p-25 + sum_error)
        << what << "[" << i << "]";
  }
}

/// What FP32 sums of `terms` products of values up to `bound` may lose.
inline double sum_error(std::size_t terms, double bound = 1.0) {
  return (static_cast<double>(terms) * 0.5 + 4.0) * 0x1p-24 * bound;
}

/// The gradient of sum(weights * f(x)) against central differences, element by element.
inline void expect_gradient(const std::function<Doubles(const Doubles&)>& f, Doubles x,
                            const Doubles& weights, const Doubles& gradient) {
  const auto value = [&] {
    const Doubles y = f(x);
    double sum = 0.0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
    return sum;
  };
  ASSERT_EQ(gradient.size(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    constexpr double kStep = 1e-5;
    const double middle = x[i];
    x[i] = middle + kStep;
    const double above = value();
    x[i] = middle - kStep;
    const double below = value();
    x[i] = middle;
    ASSERT_NEAR(gradient[i], (above - below) / (2.0 * kStep), 1e-6 * (1.0 + std::abs(gradient[i])))
        << i;
  }
}

}  // namespace gpt::test
