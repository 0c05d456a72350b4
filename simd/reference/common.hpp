// SPDX-License-Identifier: Apache-2.0
/// What every rule's reference shares: numbers of elements, thresholds, and lines g.
///
/// A reference says what a kernel computes, one element at a time in double and written to be read.
/// Each rule has, as overloads on its scalars,
///   gradient(scalars, stored, param)      line g: the kernel's own float, to the bit
///   state_line(scalars, which, old, grad) the state that its line makes of the old one
///   update_line(scalars, old, now, grad)  what is taken off the master, from the new state
///   kStates<Scalars>                      how many states it has
/// A line takes the kernel's float results of the lines before it, so that its error can be
/// bounded.
#pragma once

#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "simd/format.hpp"

namespace outboard::simd::reference {

inline constexpr double kTiny = 0x1p-100;

/// The number that half bits stand for.
inline double half_value(std::uint16_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 0x1F;
  const int fraction = bits & 0x3FF;
  if (exponent == 0x1F) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

inline double bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// The number that element `i` stands for.
inline double element_value(const ConstElements& elements, std::size_t i) {
  const auto* at = static_cast<const std::byte*>(elements.data) + i * format_bytes(elements.format);
  if (elements.format == Format::f32) {
    float value = 0.0F;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return elements.format == Format::f16 ? half_value(bits) : bf16_value(bits);
}

/// The operand as it is read: +0 if its magnitude is below the threshold.
inline double read(double value, double threshold) {
  return std::fabs(value) < threshold ? 0.0 : value;
}

/// One float multiplication and one float addition, by way of double: the product of two floats is
/// exact there, and rounding their sum twice is rounding it once (53 >= 2 * 24 + 2 bits).
inline double product(double a, double b) {
  return static_cast<float>(a * b);
}
inline double sum(double a, double b) {
  return static_cast<float>(a + b);
}

/// Line g without decay, of a number as it was stored. The smallest magnitude of FP16 is far above
/// FLT_MIN, so only a subnormal BF16 or FP32 is read as +0.
inline double scaled_gradient(double stored, float coeff) {
  return read(product(read(stored, static_cast<double>(FLT_MIN)), static_cast<double>(coeff)),
              kTiny);
}
/// Line g with L2 decay.
inline double decayed_gradient(double stored, float coeff, float weight_decay, double param) {
  const double decay = product(static_cast<double>(weight_decay), read(param, kTiny));
  return read(sum(scaled_gradient(stored, coeff), decay), kTiny);
}

/// What a line gives. Its error is measured in ulp of `scale`, after `lost`, an absolute part.
struct Line {
  double value = 0.0;
  double scale = 0.0;
  double lost = 0.0;
};

/// A sum, measured by the larger of its terms.
inline Line two_terms(double first, double second) {
  return {first + second, std::fmax(std::fabs(first), std::fabs(second))};
}

/// A quotient below the subnormals is lost whole: at most 2^-150 of it, times the step size.
inline double lost_quotient(double step_size) {
  return std::fabs(step_size) * 0x1p-150;
}

/// One element's state in double.
struct Element {
  double param = 0.0;
  std::array<double, 2> state = {};
};

/// How many states a rule has.
template <class Scalars>
inline constexpr std::size_t kStates = 2;

}  // namespace outboard::simd::reference
