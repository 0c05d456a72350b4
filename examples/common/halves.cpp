// SPDX-License-Identifier: Apache-2.0
#include "halves.hpp"

#include <cstddef>

#include "outboard/half.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace example {
namespace {

__attribute__((noinline)) void widen_loop(const Half* __restrict in, float* __restrict out,
                                          std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = outboard::half_to_float(in[i]);
}

__attribute__((noinline)) void narrow_loop(const float* __restrict in, Half* __restrict out,
                                           std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = outboard::half_from_float(in[i]);
}

#if defined(__x86_64__)
#define EXAMPLE_F16C __attribute__((target("avx2,f16c")))
constexpr std::size_t kVector = 8;

// The instructions give the bits of the loops above except for what a NaN carries, so vectors with
// one take the loops.
EXAMPLE_F16C bool has_nan(__m256 values) {
  // On the bits: a comparison of floats would let clang go back to comparing halves, one by one.
  const __m256i magnitude =
      _mm256_and_si256(_mm256_castps_si256(values), _mm256_set1_epi32(0x7FFFFFFF));
  return _mm256_movemask_epi8(_mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000))) != 0;
}

EXAMPLE_F16C void widen_f16c(const Half* __restrict in, float* __restrict out, std::size_t count) {
  std::size_t i = 0;
  for (; i + kVector <= count; i += kVector) {
    const __m256 values =
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i)));
    _mm256_storeu_ps(out + i, values);
    if (has_nan(values)) widen_loop(in + i, out + i, kVector);
  }
  widen_loop(in + i, out + i, count - i);
}

EXAMPLE_F16C void narrow_f16c(const float* __restrict in, Half* __restrict out, std::size_t count) {
  std::size_t i = 0;
  for (; i + kVector <= count; i += kVector) {
    const __m256 values = _mm256_loadu_ps(in + i);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
    if (has_nan(values)) narrow_loop(in + i, out + i, kVector);
  }
  narrow_loop(in + i, out + i, count - i);
}

bool has_f16c() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx2") != 0 && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
           (c & bit_F16C) != 0;
  }();
  return has;
}
#else
constexpr auto widen_f16c = widen_loop;
constexpr auto narrow_f16c = narrow_loop;
constexpr bool has_f16c() {
  return false;
}
#endif

}  // namespace

void widen(std::span<const Half> halves, std::span<float> floats) {
  if (has_f16c()) return widen_f16c(halves.data(), floats.data(), halves.size());
  widen_loop(halves.data(), floats.data(), halves.size());
}

void narrow(std::span<const float> floats, std::span<Half> halves) {
  if (has_f16c()) return narrow_f16c(floats.data(), halves.data(), floats.size());
  narrow_loop(floats.data(), halves.data(), floats.size());
}

}  // namespace example
