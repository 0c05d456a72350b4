// SPDX-License-Identifier: Apache-2.0
/// What the tests of every rule share: the rules as a list, a tensor of any formats, one step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "simd/reduce.hpp"
#include "tests/simd/simd_support.hpp"

namespace outboard::simd::testing {

inline constexpr std::array kFormats = {Format::f16, Format::bf16, Format::f32};
inline const char* format_name(Format format) {
  constexpr std::array kNames = {"f16", "bf16", "f32"};
  return kNames[static_cast<std::size_t>(format)];
}

/// The formats of 16 bits, and the number that an element of one of them stands for.
inline constexpr std::array kShort = {Format::f16, Format::bf16};
inline double value_of(Format format, std::uint16_t bits) {
  return format == Format::f16 ? reference::half_value(bits) : reference::bf16_value(bits);
}

struct RuleCase {
  std::string name;
  RuleScalars scalars;
};

/// Hyper-parameters of every rule; each takes what it knows.
struct AnyHyper : Hyper {
  double momentum = 0.9, dampening = 0.0;
  bool nesterov = false;
  double trust = 1.0;
};

inline AdamScalars adam_scalars(const AnyHyper& h) {
  const AdamWScalars w = make_scalars(h);
  return {w.beta1,
          w.one_minus_beta1,
          w.beta2,
          w.one_minus_beta2,
          w.eps,
          w.step_size,
          static_cast<float>(h.weight_decay),
          w.inv_sqrt_bias2,
          w.coeff,
          w.exp_avg_sq_floor,
          w.grad_sq_floor};
}
inline SgdScalars sgd_scalars(const AnyHyper& h) {
  return {static_cast<float>(h.lr),
          static_cast<float>(h.momentum),
          static_cast<float>(1.0 - h.dampening),
          static_cast<float>(h.weight_decay),
          static_cast<float>(h.coeff),
          h.step == 1,
          h.nesterov};
}
inline LionScalars lion_scalars(const AnyHyper& h) {
  const AdamWScalars w = make_scalars(h);
  return {w.beta1, w.one_minus_beta1, w.beta2, w.one_minus_beta2, static_cast<float>(h.lr), w.lr_wd,
          w.coeff};
}
inline AdagradScalars adagrad_scalars(const AnyHyper& h) {
  return {static_cast<float>(h.lr), static_cast<float>(h.eps), static_cast<float>(h.weight_decay),
          static_cast<float>(h.coeff)};
}
inline LambScalars lamb_scalars(const AnyHyper& h) {
  const AdamWScalars w = make_scalars(h);
  return {w.beta1,
          w.one_minus_beta1,
          w.beta2,
          w.one_minus_beta2,
          w.eps,
          static_cast<float>(1.0 / (1.0 - std::pow(h.beta1, h.step))),
          w.inv_sqrt_bias2,
          static_cast<float>(h.weight_decay),
          w.coeff,
          w.exp_avg_sq_floor,
          w.grad_sq_floor,
          static_cast<float>(h.lr * h.trust)};
}

inline AnyHyper any_hyper(Hyper hyper, double momentum = 0.9, double dampening = 0.0,
                          bool nesterov = false) {
  AnyHyper any;
  static_cast<Hyper&>(any) = hyper;
  any.momentum = momentum;
  any.dampening = dampening;
  any.nesterov = nesterov;
  return any;
}

/// Every rule at the given hyper-parameters, SGD in each of its shapes.
inline std::vector<RuleCase> every_rule(const Hyper& hyper) {
  Hyper later = hyper;
  later.step = std::max(hyper.step, 2);
  AnyHyper lamb = any_hyper(hyper);
  lamb.trust = 0.37;
  return {{"adamw", make_scalars(hyper)},
          {"adam", adam_scalars(any_hyper(hyper))},
          {"sgd", sgd_scalars(any_hyper(hyper, 0.0))},
          {"sgd_momentum_first", sgd_scalars(any_hyper({.lr = hyper.lr, .coeff = hyper.coeff}))},
          {"sgd_momentum", sgd_scalars(any_hyper(later, 0.9, 0.1))},
          {"sgd_nesterov", sgd_scalars(any_hyper(later, 0.9, 0.0, true))},
          {"lion", lion_scalars(any_hyper(hyper))},
          {"adagrad", adagrad_scalars(any_hyper(hyper))},
          {"lamb", lamb_scalars(lamb)}};
}

/// Owned memory of one shard in any formats; the weight has its own.
struct Tensor {
  Tensor(std::size_t size, Format from, Format to)
      : grad_format(from),
        weight_format(to),
        grad(size * format_bytes(from)),
        weight(size * format_bytes(to)),
        param(size),
        state{std::vector<float>(size), std::vector<float>(size)},
        ema(size) {}
  [[nodiscard]] std::size_t size() const { return param.size(); }
  [[nodiscard]] ConstElements stored() const { return {grad.data(), grad_format}; }
  void set_grad(std::size_t i, std::uint32_t bits) {
    std::memcpy(grad.data() + i * format_bytes(grad_format), &bits, format_bytes(grad_format));
  }
  [[nodiscard]] std::uint32_t weight_bits(std::size_t i) const {
    std::uint32_t bits = 0;
    std::memcpy(&bits, weight.data() + i * format_bytes(weight_format),
                format_bytes(weight_format));
    return bits;
  }
  UpdateShard shard() { return shard(0, size()); }
  /// Elements [first, first + count).
  UpdateShard shard(std::size_t first, std::size_t count) {
    const auto cut = [&](std::vector<float>& all) { return std::span(all).subspan(first, count); };
    return {.grad = {grad.data() + first * format_bytes(grad_format), grad_format},
            .weight = {weight.data() + first * format_bytes(weight_format), weight_format},
            .param = cut(param),
            .state = {cut(state[0]), cut(state[1])},
            .ema = cut(ema),
            .first_element = first};
  }

  Format grad_format, weight_format;
  std::vector<std::byte> grad, weight;
  std::vector<float> param;
  std::array<std::vector<float>, 2> state;
  std::vector<float> ema;
};

inline bool same_result(const Tensor& a, const Tensor& b) {
  return same_bits(a.param, b.param) && same_bits(a.state[0], b.state[0]) &&
         same_bits(a.state[1], b.state[1]) && same_bits(a.ema, b.ema) &&
         same_bits(a.weight, b.weight);
}

/// Any finite element.
inline std::uint32_t finite_bits(Random& random, Format format) {
  if (format == Format::f16) return random.finite_half();
  const float value = random.spread(-20, 4);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return format == Format::f32 ? bits : bits >> 16;
}

/// Ordinary values, as of a model in training.
inline void fill_ordinary(Tensor& tensor, Random& random) {
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    tensor.set_grad(i, finite_bits(random, tensor.grad_format));
    tensor.param[i] = random.signed_uniform();
    tensor.state[0][i] = random.signed_uniform() * 1e-2F;
    tensor.state[1][i] = random.uniform() * 1e-4F;
    tensor.ema[i] = random.signed_uniform();
  }
}
/// Adagrad's only state is a sum of squares.
inline void make_states_legal(Tensor& tensor, const RuleScalars& scalars) {
  if (!std::holds_alternative<AdagradScalars>(scalars)) return;
  for (float& sum : tensor.state[0]) sum = std::fabs(sum);
}

/// One whole step: both phases, if the rule has two.
inline std::uint64_t full_step(const UpdateShard& shard, const RuleScalars& scalars,
                               const UpdateOptions& options = {}) {
  if (const auto* lamb = std::get_if<LambScalars>(&scalars)) {
    std::vector<BlockNorms> norms(reduce_block_count(shard.param.size()));
    lamb_moments(shard, *lamb, norms);
  }
  return update(shard, scalars, options);
}

/// The element nearest to a float, found by value alone.
inline std::uint32_t nearest_element(Format format, float value) {
  if (format == Format::f32) return std::bit_cast<std::uint32_t>(value);
  const bool is_half = format == Format::f16;
  const int fraction_bits = is_half ? 10 : 7;
  const int lowest = is_half ? -14 : -126;
  const int bias = is_half ? 15 : 127;
  const std::uint32_t infinite = is_half ? 0x7C00U : 0x7F80U;
  const std::uint32_t sign = std::signbit(value) ? 0x8000U : 0U;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isnan(value)) return sign | infinite | (is_half ? 0x200U : 0x40U);
  if (std::isinf(value)) return sign | infinite;
  const int exponent = magnitude < std::ldexp(1.0, lowest) ? lowest : std::ilogb(magnitude);
  // A carry out of the fraction goes into the exponent, as it should, up to infinity.
  const auto fraction =
      static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
  const std::uint32_t one = 1U << fraction_bits;
  if (fraction < one) return sign | fraction;
  const auto biased = static_cast<std::uint32_t>(exponent + bias);
  return sign | std::min((biased << fraction_bits) + (fraction - one), infinite);
}

}  // namespace outboard::simd::testing
