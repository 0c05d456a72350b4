// SPDX-License-Identifier: Apache-2.0
#include "host_rows.hpp"

#include <array>
#include <cmath>
#include <cstdint>

#include "elementary.hpp"
#include "ops.hpp"

namespace gpt {
namespace {

constexpr std::size_t kLanes = 16;

// --- loops --------------------------------------------------------------------------------------

GPT_INLINE float fold(std::array<float, kLanes>& lanes) {
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

/// The sum of term(i), which may also write its element.
template <class Term>
GPT_INLINE float sum_over(std::size_t count, const Term& term) {
  std::array<float, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  }
  for (std::size_t l = 0; i < count; ++i, ++l) lanes[l] += term(i);
  return fold(lanes);
}

GPT_INLINE void add_loop(const float* __restrict x, float* __restrict sum, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += x[i];
}

GPT_INLINE void scale_loop(float factor, float* x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] *= factor;
}

GPT_INLINE float largest_loop(const float* x, std::size_t count) {
  std::array<float, kLanes> lanes;
  lanes.fill(x[0]);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  }
  float largest = lanes[0];
  for (const float lane : lanes) largest = lane > largest ? lane : largest;
  for (; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

GPT_INLINE float exp_shifted_loop(float shift, float* x, std::size_t count) {
  return sum_over(
      count, [=](std::size_t i)
                 __attribute__((always_inline)) { return x[i] = exp_of(x[i] - shift); });
}

GPT_INLINE float sum_of_exp_loop(const float* x, float shift, std::size_t count) {
  return sum_over(
      count, [=](std::size_t i) __attribute__((always_inline)) { return exp_of(x[i] - shift); });
}

GPT_INLINE void softmax_loop(float shift, float factor, float* x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] = exp_of(x[i] - shift) * factor;
}

GPT_INLINE void softmax_backward_loop(const float* __restrict p, float factor, float* __restrict dp,
                                      std::size_t count) {
  const float dot = sum_over(
      count, [=](std::size_t i) __attribute__((always_inline)) { return p[i] * dp[i]; });
  for (std::size_t i = 0; i < count; ++i) dp[i] = p[i] * (dp[i] - dot) * factor;
}

GPT_INLINE Moments moments_loop(const float* x, std::size_t count) {
  const float per_element = 1.0f / static_cast<float>(count);
  const float mean =
      sum_over(
          count, [=](std::size_t i) __attribute__((always_inline)) { return x[i]; }) *
      per_element;
  const float squares = sum_over(
      count, [=](std::size_t i)
                 __attribute__((always_inline)) { return (x[i] - mean) * (x[i] - mean); });
  return {mean, 1.0f / std::sqrt(squares * per_element + kLayerNormEpsilon)};
}

GPT_INLINE void normalize_loop(const Moments& moments, float* x, std::size_t count) {
  const auto [mean, inverse_deviation] = moments;
  for (std::size_t i = 0; i < count; ++i) x[i] = (x[i] - mean) * inverse_deviation;
}

GPT_INLINE void gain_bias_loop(const float* __restrict gain, const float* __restrict bias,
                               float* __restrict x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] = x[i] * gain[i] + bias[i];
}

GPT_INLINE void normalize_backward_loop(const float* __restrict x, const float* __restrict gain,
                                        float inverse_deviation, float* __restrict dy,
                                        std::size_t count) {
  const float per_element = 1.0f / static_cast<float>(count);
  const float mean = sum_over(
                         count, [=
  ](std::size_t i) __attribute__((always_inline)) { return dy[i] = dy[i] * gain[i]; }) *
                     per_element;
  const float slope =
      sum_over(
          count, [=](std::size_t i) __attribute__((always_inline)) { return dy[i] * x[i]; }) *
      per_element;
  for (std::size_t i = 0; i < count; ++i) {
    dy[i] = inverse_deviation * ((dy[i] - mean) - x[i] * slope);
  }
}

GPT_INLINE void add_product_loop(const float* __restrict x, const float* __restrict y,
                                 float* __restrict sum, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += x[i] * y[i];
}

GPT_INLINE void gelu_loop(float* x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] = x[i] * gelu_gate(x[i]);
}

GPT_INLINE void gelu_backward_loop(const float* __restrict x, float* __restrict dy,
                                   std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    dy[i] = dy[i] * gelu_slope(x[i]);
  }
}

// --- one set of kernels for each kind of CPU
// ------------------------------------------------------

// NOLINTBEGIN(bugprone-macro-parentheses): the first argument is an attribute or nothing.
#define GPT_ROW_KERNELS(Name, ATTRIBUTE)                                                           \
  struct Name {                                                                                    \
    ATTRIBUTE static void add(const float* x, float* sum, std::size_t n) { add_loop(x, sum, n); }  \
    ATTRIBUTE static void scale(float factor, float* x, std::size_t n) {                           \
      scale_loop(factor, x, n);                                                                    \
    }                                                                                              \
    ATTRIBUTE static float largest(const float* x, std::size_t n) { return largest_loop(x, n); }   \
    ATTRIBUTE static float exp_shifted(float shift, float* x, std::size_t n) {                     \
      return exp_shifted_loop(shift, x, n);                                                        \
    }                                                                                              \
    ATTRIBUTE static float sum_of_exp(const float* x, float shift, std::size_t n) {                \
      return sum_of_exp_loop(x, shift, n);                                                         \
    }                                                                                              \
    ATTRIBUTE static void softmax(float shift, float factor, float* x, std::size_t n) {            \
      softmax_loop(shift, factor, x, n);                                                           \
    }                                                                                              \
    ATTRIBUTE static void softmax_backward(const float* p, float factor, float* dp,                \
                                           std::size_t n) {                                        \
      softmax_backward_loop(p, factor, dp, n);                                                     \
    }                                                                                              \
    ATTRIBUTE static Moments moments(const float* x, std::size_t n) { return moments_loop(x, n); } \
    ATTRIBUTE static void normalize(const Moments& m, float* x, std::size_t n) {                   \
      normalize_loop(m, x, n);                                                                     \
    }                                                                                              \
    ATTRIBUTE static void gain_bias(const float* gain, const float* bias, float* x,                \
                                    std::size_t n) {                                               \
      gain_bias_loop(gain, bias, x, n);                                                            \
    }                                                                                              \
    ATTRIBUTE static void normalize_backward(const float* x, const float* gain, float inverse,     \
                                             float* dy, std::size_t n) {                           \
      normalize_backward_loop(x, gain, inverse, dy, n);                                            \
    }                                                                                              \
    ATTRIBUTE static void add_product(const float* x, const float* y, float* sum, std::size_t n) { \
      add_product_loop(x, y, sum, n);                                                              \
    }                                                                                              \
    ATTRIBUTE static void gelu(float* x, std::size_t n) { gelu_loop(x, n); }                       \
    ATTRIBUTE static void gelu_backward(const float* x, float* dy, std::size_t n) {                \
      gelu_backward_loop(x, dy, n);                                                                \
    }                                                                                              \
  };
// NOLINTEND(bugprone-macro-parentheses)

template <class Set>
constexpr RowKernels table_of() {
  return {.add = Set::add,
          .scale = Set::scale,
          .largest = Set::largest,
          .exp_shifted = Set::exp_shifted,
          .sum_of_exp = Set::sum_of_exp,
          .softmax = Set::softmax,
          .softmax_backward = Set::softmax_backward,
          .moments = Set::moments,
          .normalize = Set::normalize,
          .gain_bias = Set::gain_bias,
          .normalize_backward = Set::normalize_backward,
          .add_product = Set::add_product,
          .gelu = Set::gelu,
          .gelu_backward = Set::gelu_backward};
}

GPT_ROW_KERNELS(Plain, )
constexpr RowKernels kPlain = table_of<Plain>();

#if defined(__x86_64__)
GPT_ROW_KERNELS(Avx2, __attribute__((target("avx2"))))
GPT_ROW_KERNELS(Avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))
constexpr RowKernels kAvx2 = table_of<Avx2>();
constexpr RowKernels kAvx512 = table_of<Avx512>();

std::array<NamedRowKernels, kRowKernelSets> find_all() {
  const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  const bool avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return {{{"plain", &kPlain},
           {"avx2", avx2 ? &kAvx2 : nullptr},
           {"avx512", avx512 ? &kAvx512 : nullptr}}};
}
#else
std::array<NamedRowKernels, kRowKernelSets> find_all() {
  return {{{"plain", &kPlain}, {"avx2", nullptr}, {"avx512", nullptr}}};
}
#endif

}  // namespace

const NamedRowKernels* all_row_kernels() noexcept {
  static const auto all = find_all();
  return all.data();
}

const RowKernels& row_kernels() noexcept {
  static const RowKernels* const best = [] {
    const RowKernels* found = nullptr;
    for (std::size_t i = 0; i < kRowKernelSets; ++i) {
      if (all_row_kernels()[i].kernels != nullptr) found = all_row_kernels()[i].kernels;
    }
    return found;
  }();
  return *best;
}

}  // namespace gpt
