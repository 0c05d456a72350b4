// SPDX-License-Identifier: Apache-2.0
#include "halves.hpp"

#include <cstddef>

#include "outboard/half.hpp"

namespace example {
namespace {

#define EXAMPLE_INLINE inline __attribute__((always_inline))

EXAMPLE_INLINE void widen_loop(const Half* __restrict in, float* __restrict out,
                               std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = outboard::half_to_float(in[i]);
}

EXAMPLE_INLINE void narrow_loop(const float* __restrict in, Half* __restrict out,
                                std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = outboard::half_from_float(in[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void widen_avx2(const Half* in, float* out, std::size_t count) {
  widen_loop(in, out, count);
}
__attribute__((target("avx2"))) void narrow_avx2(const float* in, Half* out, std::size_t count) {
  narrow_loop(in, out, count);
}
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
#else
constexpr auto widen_avx2 = widen_loop;
constexpr auto narrow_avx2 = narrow_loop;
constexpr bool has_avx2() {
  return false;
}
#endif

}  // namespace

void widen(std::span<const Half> halves, std::span<float> floats) {
  if (has_avx2()) return widen_avx2(halves.data(), floats.data(), halves.size());
  widen_loop(halves.data(), floats.data(), halves.size());
}

void narrow(std::span<const float> floats, std::span<Half> halves) {
  if (has_avx2()) return narrow_avx2(floats.data(), halves.data(), floats.size());
  narrow_loop(floats.data(), halves.data(), floats.size());
}

}  // namespace example
