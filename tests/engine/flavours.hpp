// SPDX-License-Identifier: Apache-2.0
/// The ways an engine can run that must not change what it computes.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "outboard/outboard.hpp"

namespace outboard::testing {

struct Flavour {
  std::string name;
  sim::Mode mode = sim::Mode::virtual_time;
  Placement placement = Placement::host;
  double device_fraction = 0.0;
  Schedule schedule = Schedule::exact;
  Accumulate accumulate = Accumulate::trainer;
  std::optional<std::uint32_t> pinned_slots = std::nullopt;
  bool stream_memory_ops = true;
  std::string topology = "numa:1 core:2 pu:1";

  [[nodiscard]] sim::Options device() const {
    sim::Options options;
    options.mode = mode;
    options.stream_memory_ops = stream_memory_ops;
    options.memory_bytes = std::size_t{16} << 20;
    return options;
  }
  /// `config` made to run this way, in buckets of the smallest size; without what the schedule
  /// refuses.
  [[nodiscard]] Config apply(Config config) const {
    config.placement = placement;
    config.device_fraction = device_fraction;
    config.schedule = schedule;
    config.accumulate = accumulate;
    config.pinned_slots = pinned_slots;
    config.host.synthetic_topology = topology;
    config.bucket_bytes = 8192;
    if (schedule != Schedule::open) return config;
    config.max_grad_norm = 0.0;
    config.loss_scaling.dynamic = false;
    return config;
  }
};

inline std::ostream& operator<<(std::ostream& out, const Flavour& flavour) {
  return out << flavour.name;
}

inline std::vector<Flavour> all_flavours() {
  Flavour host{.name = "virtual_host"};
  Flavour serial = host;
  serial.name = "virtual_serial";
  serial.schedule = Schedule::serial;
  Flavour resident = host;
  resident.name = "virtual_resident";
  resident.placement = Placement::device_resident;
  Flavour streamed = host;
  streamed.name = "virtual_streamed";
  streamed.placement = Placement::device_streamed;
  Flavour bounce = host;
  bounce.name = "virtual_bounce";
  bounce.pinned_slots = 1;
  Flavour plain = host;
  plain.name = "virtual_no_flags";
  plain.stream_memory_ops = false;
  Flavour nodes = host;
  nodes.name = "virtual_two_nodes";
  nodes.topology = "numa:2 core:2 pu:1";
  Flavour threads = host;
  threads.name = "threads_host";
  threads.mode = sim::Mode::threads;
  Flavour threads_resident = threads;
  threads_resident.name = "threads_resident";
  threads_resident.placement = Placement::device_resident;
  Flavour threads_streamed = threads;
  threads_streamed.name = "threads_streamed";
  threads_streamed.placement = Placement::device_streamed;
  Flavour threads_bounce = threads;
  threads_bounce.name = "threads_bounce";
  threads_bounce.pinned_slots = 1;
  return {host,  serial,  resident,         streamed,         bounce,        plain,
          nodes, threads, threads_resident, threads_streamed, threads_bounce};
}

/// Ways with an open gate, whose promises differ: no part of all_flavours().
inline std::vector<Flavour> open_flavours() {
  std::vector<Flavour> out;
  for (Flavour flavour : all_flavours()) {
    if (flavour.schedule != Schedule::exact || flavour.name == "virtual_no_flags") continue;
    flavour.name += "_open";
    flavour.schedule = Schedule::open;
    out.push_back(flavour);
  }
  return out;
}

/// Those of all that a test is about.
template <class Wanted>
std::vector<Flavour> flavours_where(Wanted wanted) {
  std::vector<Flavour> flavours = all_flavours();
  std::erase_if(flavours, [&](const Flavour& flavour) { return !wanted(flavour); });
  return flavours;
}

inline std::string flavour_name(const Flavour& flavour) {
  return flavour.name;
}

}  // namespace outboard::testing
