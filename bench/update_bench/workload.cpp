// SPDX-License-Identifier: Apache-2.0
#include "update_bench/workload.hpp"

#include <array>
#include <string>
#include <variant>

#include "optim/rule_scalars.hpp"
#include "outboard/error.hpp"
#include "outboard/rules.hpp"

namespace outboard::update_bench {
namespace {

constexpr std::array<std::string_view, 6> kRules = {"adamw", "adam",    "sgd",
                                                    "lion",  "adagrad", "lamb"};
constexpr std::array<std::string_view, 3> kFormats = {"f16", "bf16", "f32"};

constexpr std::uint64_t kStep = 10;
constexpr double kLr = 1e-3;
constexpr double kDecay = 0.01;

template <class Value, std::size_t kCount>
std::optional<Value> find(const std::array<std::string_view, kCount>& names,
                          std::string_view name) noexcept {
  for (std::size_t i = 0; i < kCount; ++i) {
    if (names[i] == name) return static_cast<Value>(i);
  }
  return std::nullopt;
}

/// Usual hyper-parameters, with decay and every term that the rule has.
outboard::Rule settings_of(Rule rule) noexcept {
  switch (rule) {
    case Rule::adamw:
      return AdamW{.lr = kLr, .weight_decay = kDecay};
    case Rule::adam:
      return Adam{.lr = kLr, .weight_decay = kDecay};
    case Rule::sgd:
      return Sgd{.lr = kLr, .momentum = 0.9, .nesterov = true, .weight_decay = kDecay};
    case Rule::lion:
      return Lion{.lr = kLr, .weight_decay = kDecay};
    case Rule::adagrad:
      return Adagrad{.lr = kLr, .eps = 1e-8, .weight_decay = kDecay};
    case Rule::lamb:
      break;
  }
  return Lamb{.lr = kLr, .eps = 1e-8, .weight_decay = kDecay};
}

[[noreturn]] void refuse(ErrorCode code, const std::string& text) {
  throw Error(code, text);
}

void require_within(const char* what, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return;
  refuse(ErrorCode::invalid_argument, std::string(what) + " is " + std::to_string(value) +
                                          "; give " + std::to_string(low) + " to " +
                                          std::to_string(high));
}

}  // namespace

std::string_view name_of(Rule rule) noexcept {
  return kRules[static_cast<std::size_t>(rule)];
}
std::string_view name_of(simd::Format format) noexcept {
  return kFormats[static_cast<std::size_t>(format)];
}
std::optional<Rule> rule_named(std::string_view name) noexcept {
  return find<Rule>(kRules, name);
}
std::optional<simd::Format> format_named(std::string_view name) noexcept {
  return find<simd::Format>(kFormats, name);
}

void validate(const Workload& workload) {
  if (workload.tensors == 0) {
    require_within("number of parameters", workload.params, kMinParams, kMaxParams);
  } else {
    require_within("number of tensors", workload.tensors, 2, kMaxTensors);
  }
  require_within("number of repeats", workload.repeats, kMinRepeats, kMaxRepeats);
  if (workload.alias && simd::format_bytes(workload.grad) != simd::format_bytes(workload.weight)) {
    refuse(ErrorCode::invalid_config,
           std::string(name_of(workload.weight)) + " weights cannot lie where " +
               std::string(name_of(workload.grad)) +
               " gradients were: they differ in size; measure without aliasing");
  }
  if (workload.stochastic && workload.weight == simd::Format::f32) {
    refuse(ErrorCode::invalid_config,
           "stochastic rounding of f32 weights: they are copies of the master; "
           "give f16 or bf16 weights");
  }
  if (workload.rule == Rule::lamb && workload.tensors != 0) {
    refuse(ErrorCode::invalid_config,
           "lamb takes a norm over each tensor between its two passes, which is not measured for "
           "many small tensors; measure one tensor");
  }
}

std::vector<std::uint64_t> tensor_sizes(const Workload& workload) {
  if (workload.tensors == 0) return {workload.params};
  constexpr std::uint64_t kLow = 10;
  constexpr std::uint64_t kSpan = 9'991;    // 10 to 10,000
  constexpr std::uint64_t kStride = 6'173;  // coprime to the span: every size comes up
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t i = 0; i < workload.tensors; ++i) {
    sizes.push_back(kLow + i * kStride % kSpan);
  }
  return sizes;
}

std::size_t state_streams(Rule rule) noexcept {
  return rule == Rule::sgd || rule == Rule::lion || rule == Rule::adagrad ? 1 : 2;
}

double bytes_per_param(const Workload& workload) noexcept {
  const std::size_t ends = simd::format_bytes(workload.grad) + simd::format_bytes(workload.weight);
  std::size_t state = 8 * (1 + state_streams(workload.rule));
  // First phase: p read, both moments read and written. Second: all three read, p written.
  if (workload.rule == Rule::lamb) state = 4 + 16 + 12 + 4;
  return static_cast<double>(ends + state);
}

simd::RuleScalars scalars_of(Rule rule, bool subnormal) noexcept {
  simd::RuleScalars scalars = optim::scalars(settings_of(rule), kStep, subnormal ? 0x1p-90 : 1.0);
  if (auto* lamb = std::get_if<simd::LambScalars>(&scalars))
    lamb->lr_trust = static_cast<float>(kLr);
  return scalars;
}

}  // namespace outboard::update_bench
