// SPDX-License-Identifier: Apache-2.0
// Checks of the engine's own settings, each named with its value and what is allowed.
#include <cmath>
#include <string>

#include "core/show_number.hpp"
#include "outboard/checkpoint.hpp"
#include "outboard/config.hpp"
#include "outboard/error.hpp"

namespace outboard {
namespace {

void require(bool holds, const char* field, const std::string& value, const char* allowed) {
  if (holds) return;
  throw Error(ErrorCode::invalid_config,
              std::string(field) + " is " + value + "; allowed: " + allowed);
}
void require(bool holds, const char* field, double value, const char* allowed) {
  if (!holds) require(false, field, core::show_number(value), allowed);
}

/// From 2^-100 to 2^100: its inverse is a float far from both ends.
bool is_power_of_two(double value) {
  if (!(value >= 0x1p-100 && value <= 0x1p100)) return false;
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5;
}

/// What needs every gradient before any update.
void require_open_gate(const Config& config) {
  require(
      config.max_grad_norm == 0.0 || std::isinf(config.max_grad_norm), "Config::max_grad_norm",
      config.max_grad_norm,
      "0 with Schedule::open, whose updates start before the global norm is known; to clip take "
      "Schedule::exact");
  require(
      !config.loss_scaling.dynamic, "LossScaling::dynamic", "true",
      "false with Schedule::open, whose updates start before an overflow elsewhere is known; to "
      "scale dynamically take Schedule::exact");
  require(config.placement != Placement::automatic, "Config::placement", "automatic",
          "host, device_resident, fraction or device_streamed with Schedule::open, whose step has "
          "begun before step() could move state");
}

}  // namespace

void SaveOptions::validate() const {
  require(file_bytes >= (std::uint64_t{1} << 20), "SaveOptions::file_bytes",
          std::to_string(file_bytes), "at least 1048576, 1 MiB");
}

void LossScaling::validate() const {
  require(is_power_of_two(initial_scale), "LossScaling::initial_scale", initial_scale,
          "a power of two from 2^-100 to 2^100");
  require(is_power_of_two(min_scale), "LossScaling::min_scale", min_scale,
          "a power of two from 2^-100 to 2^100");
  require(is_power_of_two(max_scale), "LossScaling::max_scale", max_scale,
          "a power of two from 2^-100 to 2^100");
  require(min_scale <= initial_scale, "LossScaling::min_scale", min_scale,
          "at most LossScaling::initial_scale");
  require(max_scale >= initial_scale, "LossScaling::max_scale", max_scale,
          "at least LossScaling::initial_scale");
  require(growth_interval >= 1, "LossScaling::growth_interval", growth_interval, "at least 1");
  require(give_up_after >= 1, "LossScaling::give_up_after", give_up_after, "at least 1");
}

void Config::validate() const {
  loss_scaling.validate();
  require(max_grad_norm >= 0.0, "Config::max_grad_norm", max_grad_norm,
          "at least 0 (0 or infinity: no clipping)");
  require(accumulation >= 1, "Config::accumulation", accumulation, "at least 1");
  require(host.update_share >= 0.01 && host.update_share <= 1.0, "Config::host.update_share",
          host.update_share, "0.01 to 1 (1: no rests)");
  require(bucket_bytes >= (std::size_t{8} << 10), "Config::bucket_bytes",
          static_cast<double>(bucket_bytes), "at least 8192 (one block of 4,096 16-bit elements)");
  require(!pinned_slots || *pinned_slots >= 1, "Config::pinned_slots", 0.0,
          "at least 1 (unset: one for each bucket)");
  require(schedule <= Schedule::serial, "Config::schedule", static_cast<double>(schedule),
          "Schedule::exact, Schedule::blocking, Schedule::open or Schedule::serial");
  if (schedule == Schedule::open) require_open_gate(*this);
  require(accumulate == Accumulate::trainer || accumulate == Accumulate::host, "Config::accumulate",
          static_cast<double>(accumulate), "Accumulate::trainer or Accumulate::host");
  require(placement == Placement::host || placement == Placement::device_resident ||
              placement == Placement::fraction || placement == Placement::automatic ||
              placement == Placement::device_streamed,
          "Config::placement", static_cast<double>(placement),
          "Placement::host, device_resident, fraction, automatic or device_streamed");
  require(device_fraction >= 0.0 && device_fraction <= 1.0, "Config::device_fraction",
          device_fraction, "0 to 1");
  require(device_fraction == 0.0 || placement == Placement::fraction, "Config::device_fraction",
          device_fraction, "0 unless Config::placement is Placement::fraction");
}

}  // namespace outboard
