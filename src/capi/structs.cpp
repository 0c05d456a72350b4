// SPDX-License-Identifier: Apache-2.0
#include "capi/structs.hpp"

#include <variant>

namespace outboard::capi {
namespace {

/// An enumerator of C as that of C++; what C++ has not becomes a value that it refuses by name.
template <class Enum>
Enum enum_of(int value) {
  return value >= 0 && value < 255 ? static_cast<Enum>(value) : static_cast<Enum>(255);
}

LossScaling scaling_of(const outboard_config& config) {
  LossScaling scaling;
  scaling.dynamic = config.dynamic_loss_scale != 0;
  scaling.initial_scale = config.initial_loss_scale;
  scaling.growth_interval = config.growth_interval;
  return scaling;
}

}  // namespace

outboard_config default_config() {
  const Config defaults;
  outboard_config config{};
  config.struct_size = sizeof(config);
  config.max_grad_norm = defaults.max_grad_norm;
  config.accumulation = defaults.accumulation;
  config.device_budget_bytes = defaults.device_budget_bytes;
  config.bucket_bytes = defaults.bucket_bytes;
  config.dynamic_loss_scale = defaults.loss_scaling.dynamic ? 1 : 0;
  config.initial_loss_scale = defaults.loss_scaling.initial_scale;
  config.growth_interval = defaults.loss_scaling.growth_interval;
  config.reserve_cores = -1;
  return config;
}

Config config_of(const outboard_config& given) {
  Config config;
  config.max_grad_norm = given.max_grad_norm;
  config.accumulation = given.accumulation;
  config.accumulate = enum_of<Accumulate>(given.accumulate);
  config.schedule = enum_of<Schedule>(given.schedule);
  config.placement = enum_of<Placement>(given.placement);
  config.device_fraction = given.device_fraction;
  config.device_budget_bytes = given.device_budget_bytes;
  config.bucket_bytes = given.bucket_bytes;
  if (given.pinned_slots > 0) config.pinned_slots = given.pinned_slots;
  config.check_waits = given.check_waits != 0;
  config.loss_scaling = scaling_of(given);
  config.host.threads_per_node = given.threads_per_node;
  if (given.reserve_cores >= 0) {
    config.host.reserve_cores = static_cast<std::uint32_t>(given.reserve_cores);
  }
  if (given.log != nullptr) {
    config.log = [log = given.log, user = given.log_user](LogLevel level, std::string_view text) {
      log(user, static_cast<outboard_log_level>(level), std::string(text).c_str());
    };
  }
  return config;
}

// --- groups -------------------------------------------------------------------------------------

namespace {

void describe(const AdamW& rule, outboard_group& group) {
  group.lr = rule.lr, group.beta1 = rule.beta1, group.beta2 = rule.beta2, group.eps = rule.eps;
}
void describe(const Adam& rule, outboard_group& group) {
  group.lr = rule.lr, group.beta1 = rule.beta1, group.beta2 = rule.beta2, group.eps = rule.eps;
}
void describe(const Sgd& rule, outboard_group& group) {
  group.lr = rule.lr;
}
void describe(const Lion& rule, outboard_group& group) {
  group.lr = rule.lr, group.beta1 = rule.beta1, group.beta2 = rule.beta2;
}
void describe(const Adagrad& rule, outboard_group& group) {
  group.lr = rule.lr, group.eps = rule.eps;
}
void describe(const Lamb& rule, outboard_group& group) {
  group.lr = rule.lr, group.beta1 = rule.beta1, group.beta2 = rule.beta2, group.eps = rule.eps;
}

template <class AdamLike>
AdamLike adam_like(const outboard_group& group) {
  return {.lr = group.lr,
          .beta1 = group.beta1,
          .beta2 = group.beta2,
          .eps = group.eps,
          .weight_decay = group.weight_decay};
}

Sgd sgd(const outboard_group& group) {
  return {.lr = group.lr,
          .momentum = group.momentum,
          .dampening = group.dampening,
          .nesterov = group.nesterov != 0,
          .weight_decay = group.weight_decay};
}

Adagrad adagrad(const outboard_group& group) {
  return {.lr = group.lr,
          .lr_decay = group.lr_decay,
          .initial_accumulator = group.initial_accumulator,
          .eps = group.eps,
          .weight_decay = group.weight_decay};
}

}  // namespace

outboard_group default_group(outboard_rule rule) {
  outboard_group group{};
  group.struct_size = sizeof(group);
  group.rule = rule;
  group.ema_decay = -1.0;
  if (rule < OUTBOARD_ADAMW || rule > OUTBOARD_LAMB) return group;
  outboard_group zero = group;
  std::visit([&](const auto& kind) { describe(std::decay_t<decltype(kind)>{}, group); },
             rule_of("outboard_group_init", zero));
  return group;
}

Rule rule_of(const char* call, const outboard_group& group) {
  switch (group.rule) {
    case OUTBOARD_ADAMW:
      return adam_like<AdamW>(group);
    case OUTBOARD_ADAM:
      return adam_like<Adam>(group);
    case OUTBOARD_SGD:
      return sgd(group);
    case OUTBOARD_LION:
      return Lion{.lr = group.lr,
                  .beta1 = group.beta1,
                  .beta2 = group.beta2,
                  .weight_decay = group.weight_decay};
    case OUTBOARD_ADAGRAD:
      return adagrad(group);
    case OUTBOARD_LAMB:
      return adam_like<Lamb>(group);
  }
  refuse(call, "`group->rule` is " + std::to_string(group.rule) +
                   "; there are OUTBOARD_ADAMW (0) to OUTBOARD_LAMB (5)");
}

GroupOptions options_of(const outboard_group& group) {
  GroupOptions options;
  options.rounding = enum_of<Rounding>(group.rounding);
  options.seed = group.seed;
  if (!(group.ema_decay < 0.0)) options.ema_decay = group.ema_decay;
  return options;
}

// --- parameters and reports ---------------------------------------------------------------------

outboard_parameter default_parameter() {
  outboard_parameter parameter{};
  parameter.struct_size = sizeof(parameter);
  return parameter;
}

ParameterSpec spec_of(const outboard_parameter& parameter) {
  ParameterSpec spec;
  spec.name = parameter.name;
  spec.dtype = enum_of<DType>(parameter.dtype);
  spec.elems = parameter.elems;
  spec.data = parameter.data;
  spec.group = GroupId{parameter.group};
  if (parameter.master != nullptr) spec.master = {parameter.master, parameter.elems};
  return spec;
}

outboard_step_result result_of(const StepResult& result) {
  outboard_step_result out{};
  out.outcome = static_cast<outboard_outcome>(result.outcome);
  out.step = result.step;
  out.grad_norm = result.grad_norm;
  out.clip = result.clip;
  out.loss_scale = result.loss_scale;
  out.next_loss_scale = result.next_loss_scale;
  if (result.non_finite) {
    out.non_finite_parameter = result.non_finite->parameter.value;
    out.non_finite_element = result.non_finite->element;
    out.non_finite_count = result.non_finite->count;
  }
  return out;
}

outboard_stats stats_of(const StepStats& stats, const MemoryLedger& ledger) {
  outboard_stats out{};
  out.steps_applied = stats.steps_applied;
  out.steps_skipped = stats.steps_skipped;
  out.gradient_bytes_down = stats.gradient_bytes_down;
  out.weight_bytes_up = stats.weight_bytes_up;
  out.state_bytes_up = stats.state_bytes_up;
  out.state_bytes_down = stats.state_bytes_down;
  out.weight_overflows = stats.weight_overflows;
  out.gate_wait_us = stats.gate_wait_us;
  out.drain_wait_us = stats.drain_wait_us;
  out.finish_wait_us = stats.finish_wait_us;
  out.refresh_wait_us = stats.refresh_wait_us;
  out.update_busy_us = stats.update_busy_us;
  out.host_bytes =
      ledger.bytes(MemoryPlace::host_pinned) + ledger.bytes(MemoryPlace::host_pageable);
  out.device_bytes = ledger.bytes(MemoryPlace::device);
  return out;
}

}  // namespace outboard::capi
