// SPDX-License-Identifier: Apache-2.0
/// The functions of one number that the host's operators and the GPU's kernels share.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define GPT_INLINE __host__ __device__ __forceinline__
#else
#define GPT_INLINE inline __attribute__((always_inline))
#endif

namespace gpt {

inline constexpr float kNormalEpsilon = 1e-5f;

/// exp to about 1e-7 of its value, between exp(-87) and exp(88), which stand for what is beyond.
/// x = n ln 2 + r; the polynomial is the Taylor series to r^7, |r| <= ln 2 / 2. Adding 1.5 * 2^23
/// rounds to an integer and leaves it in the low bits. A NaN stays one: comparisons with it fail.
GPT_INLINE float exp_of(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;  // ln 2 in two parts
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = (p * r) * r + r;
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) + 127u) << 23;
  return (p + 1.0f) * std::bit_cast<float>(power);
}

// (1 + tanh(z)) / 2 = 1 / (1 + exp(-2 z)), which keeps its relative accuracy in both tails.
inline constexpr float kTwiceRoot = 1.59576912f;  // 2 sqrt(2 / pi)
inline constexpr float kCubic = 0.044715f;

GPT_INLINE float gelu_gate(float x) {
  return 1.0f / (1.0f + exp_of(-kTwiceRoot * (x + kCubic * x * x * x)));
}

/// gelu'(x)
GPT_INLINE float gelu_slope(float x) {
  const float gate = gelu_gate(x);
  const float slope = kTwiceRoot * (1.0f + (3.0f * kCubic) * x * x);
  return gate + x * slope * (gate * (1.0f - gate));
}

}  // namespace gpt
