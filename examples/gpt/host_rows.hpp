// SPDX-License-Identifier: Apache-2.0
/// What the host operators do with rows of floats, vectorised for the CPU that they run on. Sums
/// run over 16 lanes (lane l adds elements l, l + 16, ...) that are folded by halves, and nothing
/// is contracted, so every CPU gives the same bits. NaN and infinities spread.
#pragma once

#include <cstddef>

namespace gpt {

struct Moments {
  float mean, inverse_deviation;
};

/// Rows of `count` floats; none may overlap unless it is the same one.
struct RowKernels {
  /// sum += x
  void (*add)(const float* x, float* sum, std::size_t count);
  /// x *= factor
  void (*scale)(float factor, float* x, std::size_t count);
  float (*largest)(const float* x, std::size_t count);  ///< NaN aside
  /// x = exp(x - shift). @return the sum
  float (*exp_shifted)(float shift, float* x, std::size_t count);
  float (*sum_of_exp)(const float* x, float shift, std::size_t count);
  /// x = exp(x - shift) * factor
  void (*softmax)(float shift, float factor, float* x, std::size_t count);
  /// dp = p (dp - sum(p dp)) factor
  void (*softmax_backward)(const float* p, float factor, float* dp, std::size_t count);

  Moments (*moments)(const float* x, std::size_t count);
  /// x = (x - mean) * inverse_deviation
  void (*normalize)(const Moments& moments, float* x, std::size_t count);
  /// x = x gain + bias
  void (*gain_bias)(const float* gain, const float* bias, float* x, std::size_t count);
  /// x is normalized. dy = gradient of what was normalized, of dy through gain
  void (*normalize_backward)(const float* x, const float* gain, float inverse_deviation, float* dy,
                             std::size_t count);
  /// sum += x y
  void (*add_product)(const float* x, const float* y, float* sum, std::size_t count);

  void (*gelu)(float* x, std::size_t count);
  /// dy = dy gelu'(x)
  void (*gelu_backward)(const float* x, float* dy, std::size_t count);
};

/// The kernels for this CPU, chosen once.
[[nodiscard]] const RowKernels& row_kernels() noexcept;

/// For tests: every set of kernels that this CPU can run, the plainest first.
struct NamedRowKernels {
  const char* name;
  const RowKernels* kernels;  ///< null: not on this CPU
};
inline constexpr std::size_t kRowKernelSets = 3;
[[nodiscard]] const NamedRowKernels* all_row_kernels() noexcept;

}  // namespace gpt
