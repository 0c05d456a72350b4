// SPDX-License-Identifier: Apache-2.0
// State moves between host and device, between steps.
#include <algorithm>
#include <iomanip>
#include <sstream>
#include <string>

#include "pipeline/rates.hpp"
#include "pipeline/step.hpp"

namespace outboard::pipeline {

void Pipeline::require_movable() const {
  require_none_pending("set_placement()");
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
  next.placement = without_kernels_on_host(next.placement);
  const std::vector<plan::Home> homes =
      plan::homes_of(flow_.layout, plan::wish_of(next, flow_.state_bytes().fewest));
  require_streamable(homes, "set_placement()");
  require_kernels(homes, "set_placement()");
  if (homes != flow_.homes()) move_to(lock, homes, next.device_budget_bytes);
  // Not all of it: `log` may be what calls.
  config_.placement = next.placement;
  config_.device_fraction = next.device_fraction;
  config_.device_budget_bytes = next.device_budget_bytes;
  auto_.reset();
  if (config_.placement != Placement::automatic) return;
  wait_for_idle(lock);
  auto_ = start_automatic(lock);
}

void Pipeline::wait_for_idle(std::unique_lock<std::mutex>& lock) {
  synchronize_all(lock);
  // A gradient that was dropped may still be on its way into a sum on the device.
  flow_.backend.record(uploads_passed_, flow_.norm);
  flow_.synchronize(lock, uploads_passed_, "a move of state: norms and sums on the device");
  flow_.wait_until(
      lock, [&] { return flow_.tasks_pending == 0 && flow_.callbacks_pending == 0; },
      "a move of state: gradients on their way");
}

Placement Pipeline::without_kernels_on_host(Placement placement) const {
  const bool kernels = flow_.backend.why_no_kernels().empty();
  return kernels || placement != Placement::automatic ? placement : Placement::host;
}

void Pipeline::require_kernels(const std::vector<plan::Home>& homes, const char* call) const {
  const std::string& why = flow_.backend.why_no_kernels();
  const bool all_on_host =
      std::ranges::all_of(homes, [](plan::Home home) { return home == plan::Home::host; });
  if (why.empty() || all_on_host) return;
  throw Error(ErrorCode::unsupported,
              std::string(call) +
                  ": no state on the device, which runs no kernels of the engine's: " + why +
                  "; use Placement::host, or a newer driver");
}

void Pipeline::require_streamable(const std::vector<plan::Home>& homes, const char* call) const {
  for (const Parameter& parameter : flow_.parameters) {
    if (!parameter.two_phase || parameter.segments.count == 0) continue;
    const std::uint32_t bucket = flow_.layout.segments[parameter.segments.first].bucket;
    if (homes[bucket] != plan::Home::device_streamed) continue;
    throw Error(ErrorCode::invalid_config,
                std::string(call) +
                    ": Placement::device_streamed and Lamb, which updates parameter '" +
                    parameter.name +
                    "': its norms need all of a parameter's state at once, and the stream buffers "
                    "hold one bucket each; use Placement::host, fraction or device_resident, or "
                    "another rule");
  }
}

DeviceRoom Pipeline::device_room(const std::vector<plan::Home>& homes, std::size_t budget_bytes,
                                 Keep keep) const {
  const std::size_t needed = streamed_->needed_bytes(homes);
  const std::size_t held = streamed_->held().size();
  if (keep == Keep::nothing) return {budget_bytes, needed, needed, held};
  return {budget_bytes, std::max(needed, held), needed > held ? needed : 0, 0};
}

/// All that the present homes need, or nothing. Nothing is held before.
void Pipeline::allocate_on_device(std::size_t budget_bytes) {
  resident_->allocate(device_room(flow_.homes(), budget_bytes, Keep::nothing));
  try {
    streamed_->allocate();
  } catch (...) {
    resident_->release();
    streamed_->release();
    throw;
  }
}

/// All of the state is on the host.
void Pipeline::leave_device() noexcept {
  resident_->release();
  streamed_->release();
  flow_.set_homes(plan::Home::host);
}

void Pipeline::move_to(std::unique_lock<std::mutex>& lock, const std::vector<plan::Home>& homes,
                       std::size_t budget_bytes) {
  wait_for_idle(lock);
  resident_->require_room_for(homes, device_room(homes, budget_bytes, Keep::nothing));
  whole_state_->move_to_host(lock);
  leave_device();
  flow_.set_homes(homes);
  try {
    allocate_on_device(budget_bytes);
    pin_streamed_state();
  } catch (const Error& failure) {
    leave_device();
    if (failure.code() != ErrorCode::out_of_memory) throw;
    throw Error(failure.code(), std::string("all of the state is on the host now, "
                                            "where it is updated as before: ") +
                                    failure.what());
  } catch (...) {
    leave_device();
    throw;
  }
  whole_state_->move_to_device(lock);
  if (flow_.device_count() > 0) gate_->fetch_overflow_counts();
}

// --- automatic ----------------------------------------------------------------------------------

/// Nothing is running and no gradient pending.
std::unique_ptr<AutoPlacement> Pipeline::start_automatic(std::unique_lock<std::mutex>& lock) {
  std::size_t slots = 0;
  for (const auto& ring : rings_) slots += ring->slots();
  return std::make_unique<AutoPlacement>(flow_, plan::step_schedule(config_.schedule),
                                         measure_rates(lock, flow_, trial_memory()), slots);
}

/// Pinned if any is: a slot or a buffer of the ring, the largest. Between steps nobody needs what
/// they hold.
std::span<std::byte> Pipeline::trial_memory() const {
  std::span<std::byte> largest;
  for (const BucketRun& bucket : flow_.buckets) {
    if (bucket.slot.direct && bucket.slot.bytes.size() > largest.size()) {
      largest = bucket.slot.bytes;
    }
  }
  if (!largest.empty()) return largest;
  for (const Generation& generation : flow_.generations) {
    if (!generation.staging.ring().empty()) return generation.staging.ring().front().bytes;
  }
  return {};
}

/// What may be resident, less what the device adds to each allocation and norms need beside it.
std::uint64_t Pipeline::automatic_budget() const {
  const device::MemoryInfo memory = flow_.backend.memory();
  const std::size_t free_bytes = memory.limit_bytes - memory.used_bytes + resident_->held_bytes();
  const std::size_t spared = memory.limit_bytes / 20;
  const std::size_t usable = free_bytes - std::min(free_bytes, spared);
  const std::size_t budget = std::min(usable, config_.device_budget_bytes);
  return budget - std::min(budget, resident_->most_overhead_bytes());
}

void Pipeline::place_automatically(std::unique_lock<std::mutex>& lock) {
  auto_->applied();
  if (!auto_->due() || snapshot_->active()) return;  // a running save reads the state where it is
  const std::optional<AutoPlacement::Choice> choice = auto_->choose(automatic_budget());
  if (!choice) return;
  if (!choice->worth_a_move) return auto_->stayed(*choice);
  try {
    move_to(lock, choice->homes, config_.device_budget_bytes);
  } catch (const Error& failure) {
    if (failure.code() != ErrorCode::out_of_memory) throw;
    warn(std::string("placement: automatic: ") + failure.what());
    return auto_->failed(*choice);
  }
  auto_->moved(*choice);
  flow_.stats.moves += 1;
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << "placement: automatic, "
       << 100.0 * flow_.share().fraction() << " % of the state on the device from step "
       << steps_ + 1 << " on; predicted step " << choice->step_us << " us, before "
       << choice->now_us << " us";
  tell(LogLevel::info, text.str());
}

}  // namespace outboard::pipeline
