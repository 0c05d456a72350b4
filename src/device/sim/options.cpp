// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>

#include "core/show_number.hpp"
#include "outboard/error.hpp"
#include "outboard/sim.hpp"

namespace outboard::sim {
namespace {

void check_rate(double value, const char* field) {
  if (std::isfinite(value) && value >= 0.0) return;
  throw Error(ErrorCode::invalid_config, std::string("sim::Options::rates.") + field + " is " +
                                             core::show_number(value) +
                                             "; finite and at least 0 (instant) is allowed");
}

void check_duration(Duration value, const char* field) {
  if (value.count() >= 0) return;
  throw Error(ErrorCode::invalid_config, std::string("sim::Options::") + field + " is " +
                                             std::to_string(value.count()) +
                                             " ns; at least 0 is allowed");
}

}  // namespace

void Options::validate() const {
  if (memory_bytes < 256) {
    throw Error(ErrorCode::invalid_config, "sim::Options::memory_bytes is " +
                                               std::to_string(memory_bytes) +
                                               "; at least 256 is needed");
  }
  check_rate(rates.link_down_bytes_per_s, "link_down_bytes_per_s");
  check_rate(rates.link_up_bytes_per_s, "link_up_bytes_per_s");
  check_rate(rates.device_bytes_per_s, "device_bytes_per_s");
  check_rate(rates.disk_bytes_per_s, "disk_bytes_per_s");
  for (const double rate : rates.host_elems_per_s) check_rate(rate, "host_elems_per_s");
  check_duration(rates.copy_latency, "rates.copy_latency");
  check_duration(max_random_delay, "max_random_delay");
  if (mode == Mode::threads && max_random_delay.count() > 0) {
    throw Error(ErrorCode::invalid_config,
                "sim::Options::max_random_delay is " + std::to_string(max_random_delay.count()) +
                    " ns with Mode::threads; only Mode::virtual_time can replay random delays");
  }
  for (const Fault& fault : faults) {
    if (fault.nth != 0) continue;
    throw Error(ErrorCode::invalid_config, std::string("sim::Options::faults: nth is 0 for ") +
                                               to_string(fault.call) + "; calls count from 1");
  }
}

}  // namespace outboard::sim
