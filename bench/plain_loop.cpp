// SPDX-License-Identifier: Apache-2.0
#include "plain_loop.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "outboard/half.hpp"

namespace outboard::bench {
namespace {

struct F16 {
  using Bits = std::uint16_t;
  static float read(Bits bits) { return half_to_float(bits); }
  static Bits round(float value) { return half_from_float(value); }
};
struct BF16 {
  using Bits = std::uint16_t;
  static float read(Bits bits) { return bf16_to_float(bits); }
  static Bits round(float value) { return bf16_from_float(value); }
};
struct F32 {
  using Bits = float;
  static float read(float value) { return value; }
  static float round(float value) { return value; }
};

// __restrict is a promise for each name: memory shared with the weight is read through its name.
template <class Format>
void loop(const simd::UpdateShard& shard, const simd::AdamWScalars& s) {
  using Bits = typename Format::Bits;
  const bool aliased = shard.grad.data == shard.weight.data;
  auto* __restrict weight = static_cast<Bits*>(shard.weight.data);
  const auto* __restrict apart = static_cast<const Bits*>(shard.grad.data);
  float* __restrict p = shard.param.data();
  float* __restrict m = shard.state[0].data();
  float* __restrict v = shard.state[1].data();
  const std::size_t size = shard.param.size();
  const auto step = [&](std::size_t i, Bits bits) {
    const float g = Format::read(bits) * s.coeff;
    m[i] = s.beta1 * m[i] + s.one_minus_beta1 * g;
    v[i] = s.beta2 * v[i] + s.one_minus_beta2 * g * g;
    const float divisor = std::sqrt(v[i]) * s.inv_sqrt_bias2 + s.eps;
    p[i] -= s.lr_wd * p[i] + s.step_size * (m[i] / divisor);
    weight[i] = Format::round(p[i]);
  };
  if (aliased) {
    for (std::size_t i = 0; i < size; ++i) step(i, weight[i]);
  } else {
    for (std::size_t i = 0; i < size; ++i) step(i, apart[i]);
  }
}

}  // namespace

void plain_adamw(const simd::UpdateShard& shard, const simd::AdamWScalars& scalars) noexcept {
  switch (shard.grad.format) {
    case simd::Format::f16:
      return loop<F16>(shard, scalars);
    case simd::Format::bf16:
      return loop<BF16>(shard, scalars);
    case simd::Format::f32:
      return loop<F32>(shard, scalars);
  }
}

}  // namespace outboard::bench
