// SPDX-License-Identifier: Apache-2.0
// State moves between host and device, between steps.
#include <algorithm>
#include <string>

#include "pipeline/step.hpp"

namespace outboard::pipeline {

void Pipeline::require_movable() const {
  for (const Parameter& parameter : flow_.parameters) {
    if (!parameter.has_gradient) continue;
    throw Error(ErrorCode::protocol_error, "set_placement(): a gradient of parameter '" +
                                               parameter.name +
                                               "' is pending; call step() or discard() first");
  }
  if (slots_ == flow_.buckets.size()) return;
  throw Error(ErrorCode::invalid_config,
              "set_placement(): the host has room for " + std::to_string(slots_) + " of " +
                  std::to_string(flow_.buckets.size()) +
                  " buckets only, which commit() has fixed; set Config::keep_host_room to move "
                  "state later");
}

void Pipeline::move(std::unique_lock<std::mutex>& lock, const PlacementChange& change) {
  require_movable();
  Config next = config_;
  next.placement = change.placement;
  next.device_fraction = change.device_fraction;
  if (change.device_budget_bytes) next.device_budget_bytes = *change.device_budget_bytes;
  next.validate();
  const std::vector<bool> resident =
      plan::resident_buckets(flow_.layout, plan::wish_of(next, flow_.streams.elem_bytes()));
  if (resident != flow_.homes()) move_to(lock, resident, next.device_budget_bytes);
  config_ = std::move(next);
}

void Pipeline::move_to(std::unique_lock<std::mutex>& lock, const std::vector<bool>& resident,
                       std::size_t budget_bytes) {
  synchronize_uploads(lock);
  flow_.wait_until(
      lock, [&] { return flow_.tasks_pending == 0 && flow_.callbacks_pending == 0; },
      "set_placement(): dropped gradients on their way");
  resident_->require_room_for(resident, budget_bytes);
  whole_state_->move_to_host(lock);
  resident_->release();
  flow_.set_homes(resident);
  try {
    resident_->allocate(budget_bytes);
  } catch (const Error& failure) {
    flow_.set_homes(std::vector<bool>(resident.size(), false));
    throw Error(failure.code(), std::string("set_placement(): all of the state is on the host now, "
                                            "where it is updated as before: ") +
                                    failure.what());
  }
  whole_state_->move_to_device(lock);
  if (flow_.resident_count > 0) gate_->fetch_overflow_counts();
}

}  // namespace outboard::pipeline
