// SPDX-License-Identifier: Apache-2.0
// The calls that are made between steps, and what is reported of the steps before.
#include "optim/format.hpp"
#include "pipeline/guarded.hpp"

namespace outboard::pipeline {

void Pipeline::synchronize() {
  guarded([&](auto& lock) {
    require_closed("synchronize()");
    synchronize_all(lock);
  });
}

void Pipeline::require_no_gradient(const std::string& call) {
  const std::lock_guard lock(flow_.mutex);
  require_none_pending(call);
}

void Pipeline::require_none_pending(const std::string& call) const {
  for (const Parameter& parameter : flow_.parameters) {
    if (!parameter.has_gradient) continue;
    throw Error(ErrorCode::protocol_error, call + ": a gradient of " + quoted(parameter) +
                                               " is pending; call step()" +
                                               (open_gate_ ? "" : " or discard()") + " first");
  }
}

void Pipeline::set_placement(const PlacementChange& change) {
  guarded([&](auto& lock) {
    require_closed("set_placement()");
    move(lock, change);
  });
}

void Pipeline::require_weight_at_rest(const std::string& call, const Parameter& parameter) const {
  require_closed(call.c_str());
  if (parameter.has_gradient) {
    throw Error(ErrorCode::protocol_error, call + ": a gradient of " + quoted(parameter) +
                                               " is pending; call step() or discard() first");
  }
  if (parameter.refresh_unwaited) {
    throw Error(ErrorCode::protocol_error,
                call + ": " + quoted(parameter) +
                    " was refreshed by the last step() and nobody called wait() for it, so the "
                    "refresh may overwrite the change; call wait() before writing the weight");
  }
}

void Pipeline::weights_changed(ParameterId id, NativeStream stream) {
  guarded([&](auto& lock) {
    const Parameter& parameter = flow_.parameters[id.value];
    require_weight_at_rest("weights_changed()", parameter);
    if (parameter.elems == 0) return;
    synchronize_all(lock);
    flow_.wait_until(
        lock, [&] { return flow_.tasks_pending == 0 && flow_.callbacks_pending == 0; },
        "weights_changed(): dropped gradients on their way");
    streamed_->forget();
    whole_state_->reread(lock, id.value, stream);
  });
}

void Pipeline::rebind(ParameterId id, void* weight) {
  guarded([&](auto& lock) {
    Parameter& parameter = flow_.parameters[id.value];
    require_weight_at_rest("rebind()", parameter);
    if (parameter.elems == 0) return;
    synchronize_all(lock);
    parameter.weight = weight;
    const plan::Segment& first = flow_.layout.segments[parameter.segments.first];
    if (Packing* packing = flow_.buckets[first.bucket].packing) packing->load_tables(lock);
  });
}

void Pipeline::set_max_grad_norm(double limit) {
  guarded([&](auto&) {
    if (open_gate_) {
      throw Error(ErrorCode::invalid_config,
                  "set_max_grad_norm() under Schedule::open, which updates before the norm is "
                  "known; take another schedule");
    }
    gate_->set_max_grad_norm(limit);
  });
}

void Pipeline::set_gradient_divisor(double divisor) {
  guarded([&](auto&) {
    require_closed("set_gradient_divisor()");
    gate_->set_gradient_divisor(divisor);
  });
}

std::uint64_t Pipeline::state_digest() {
  return guarded([&](auto& lock) {
    require_closed("state_digest()");
    synchronize_all(lock);
    return whole_state_->digest(lock, gate_->loss_scale());
  });
}

void Pipeline::read_state(ParameterId id, std::span<const StateRead> reads) {
  guarded([&](auto& lock) {
    require_closed("read_state()");
    synchronize_all(lock);
    whole_state_->read(lock, id.value, reads);
  });
}

double Pipeline::loss_scale() {
  const std::lock_guard lock(flow_.mutex);
  return gate_->loss_scale();
}

std::uint64_t Pipeline::step_count(ParameterId id) {
  const std::lock_guard lock(flow_.mutex);
  return flow_.parameters[id.value].step_count;
}

void Pipeline::report_weight_overflows() {
  if (open_gate_ && !gate_->overflow_counts_there()) return;
  for (std::uint32_t i = 0; i < flow_.parameters.size(); ++i) {
    const std::uint64_t total = flow_.weight_overflows[i].load() + gate_->device_overflows(i);
    if (total == reported_overflows_[i]) continue;
    flow_.stats.weight_overflows += total - reported_overflows_[i];
    if (reported_overflows_[i] == 0) {
      warn(quoted(flow_.parameters[i]) + ": " + std::to_string(total) +
           " finite master weights are too large for " + dtype_name(flow_.parameters[i].dtype) +
           " and became Inf on the device; lower the learning rate or add weight decay. Later ones "
           "are counted in StepStats only");
    }
    reported_overflows_[i] = total;
  }
}

void Pipeline::warn(std::string text) {
  tell(LogLevel::warning, std::move(text));
}

void Pipeline::tell(LogLevel level, std::string text) {
  if (!config_.log || text.empty()) return;
  news_.emplace_back(level, std::move(text));
  any_news_.store(true);
}

void Pipeline::deliver_news() noexcept {
  if (!any_news_.exchange(false)) return;
  std::vector<std::pair<LogLevel, std::string>> news;
  {
    const std::lock_guard lock(flow_.mutex);
    news.swap(news_);
  }
  for (const auto& [level, text] : news) {
    try {
      config_.log(level, text);
    } catch (...) {  // a sink that fails must not fail the step
    }
  }
}

}  // namespace outboard::pipeline
