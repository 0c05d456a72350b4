// SPDX-License-Identifier: Apache-2.0
// Plain loops in the widest vectors the CPU has, chosen by hand: target_clones needs an ifunc,
// whose resolver runs before a sanitizer is ready.
#include "update_bench/roof.hpp"

#include <cstddef>
#include <cstdint>

namespace outboard::update_bench {
namespace {

struct Streams {
  float *a, *b, *c;
  std::size_t size;
};

// Integers: no value is slow, none changes. The mask is 0, which the compiler must not know.
__attribute__((always_inline)) inline void touch_loop(const Streams& s, std::uint32_t mask) {
  auto* __restrict a = reinterpret_cast<std::uint32_t*>(s.a);
  auto* __restrict b = reinterpret_cast<std::uint32_t*>(s.b);
  auto* __restrict c = reinterpret_cast<std::uint32_t*>(s.c);
  for (std::size_t i = 0; i < s.size; ++i) {
    a[i] ^= mask;
    b[i] ^= mask;
    c[i] ^= mask;
  }
}

__attribute__((always_inline)) inline void triad_loop(const Streams& s, std::uint32_t factor) {
  float* __restrict a = s.a;
  const float* __restrict b = s.b;
  const float* __restrict c = s.c;
  const auto scale = static_cast<float>(factor);
  for (std::size_t i = 0; i < s.size; ++i) a[i] = b[i] + scale * c[i];
}

using Loop = void (*)(const Streams&, std::uint32_t);

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512vl"))) void touch_512(const Streams& s, std::uint32_t mask) {
  touch_loop(s, mask);
}
__attribute__((target("avx2"))) void touch_256(const Streams& s, std::uint32_t mask) {
  touch_loop(s, mask);
}
__attribute__((target("avx512f,avx512vl"))) void triad_512(const Streams& s, std::uint32_t factor) {
  triad_loop(s, factor);
}
__attribute__((target("avx2"))) void triad_256(const Streams& s, std::uint32_t factor) {
  triad_loop(s, factor);
}
#endif

void touch_any(const Streams& s, std::uint32_t mask) {
  touch_loop(s, mask);
}
void triad_any(const Streams& s, std::uint32_t factor) {
  triad_loop(s, factor);
}

struct Loops {
  Loop touch = touch_any;
  Loop triad = triad_any;
};

Loops choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
    return {touch_512, triad_512};
  }
  if (__builtin_cpu_supports("avx2")) return {touch_256, triad_256};
#endif
  return {};
}

const Loops& loops() {
  static const Loops chosen = choose();
  return chosen;
}

Streams of(const std::array<std::span<float>, 3>& streams) {
  return {streams[0].data(), streams[1].data(), streams[2].data(), streams[0].size()};
}

}  // namespace

void touch_three(const std::array<std::span<float>, 3>& streams) noexcept {
  static const volatile std::uint32_t kMask = 0;
  loops().touch(of(streams), kMask);
}

void triad(const std::array<std::span<float>, 3>& streams) noexcept {
  loops().triad(of(streams), 3);
}

}  // namespace outboard::update_bench
