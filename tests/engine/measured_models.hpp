// SPDX-License-Identifier: Apache-2.0
/// Models whose steps are counted and whose memory is measured, and the ways they run.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/flavours.hpp"
#include "engine/splits.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {

/// The executor that this build prefers and a device in real time.
inline Flavour real_time(const std::string& name) {
  Flavour out;
  out.name = name;
  out.mode = sim::Mode::threads;
  return out;
}

inline std::vector<Flavour> every_way() {
  std::vector<Flavour> out = all_flavours();
  out.push_back(real_time("threads_serial"));
  out.back().schedule = Schedule::serial;
  out.push_back(real_time("threads_blocking"));
  out.back().schedule = Schedule::blocking;
  out.push_back(real_time("threads_no_flags"));
  out.back().stream_memory_ops = false;
  out.push_back(real_time("threads_two_nodes"));
  out.back().topology = "numa:2 core:2 pu:1";
  for (const bool real : {true, false}) {
    out.push_back(real ? real_time("threads_fraction") : Flavour{.name = "virtual_fraction"});
    out.back().placement = Placement::fraction;
    out.back().device_fraction = 0.4;
  }
  out.push_back(out.back());
  out.back().name = "virtual_fraction_bounce";
  out.back().pinned_slots = 1;
  return out;
}

inline TinyOptions mixed_model(const Flavour& flavour) {
  TinyOptions options;
  options.device = flavour.device();
  Config config;
  config.max_grad_norm = 1.0;
  config.loss_scaling.initial_scale = 256.0;
  options.config = flavour.apply(config);
  for (const std::uint64_t elems : {30000u, 7u, 0u, 9000u, 4096u, 100u}) {
    TinyParameter parameter;
    parameter.elems = elems;
    options.parameters.push_back(parameter);
  }
  options.digest = false;
  round_fraction(options);
  return options;
}

inline std::uint64_t elements(const TinyOptions& options) {
  std::uint64_t sum = 0;
  for (const TinyParameter& parameter : options.parameters) sum += parameter.elems;
  return sum;
}

inline TinyOptions large_model(const Flavour& flavour) {
  TinyOptions options = mixed_model(flavour);
  options.config.bucket_bytes = std::size_t{64} << 10;
  options.parameters.clear();
  for (const std::uint64_t elems : {100000u, 50000u, 150000u, 33u}) {
    TinyParameter parameter;
    parameter.elems = elems;
    options.parameters.push_back(parameter);
  }
  options.config.device_fraction = flavour.device_fraction;
  round_fraction(options);
  return options;
}

inline std::size_t page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace outboard::testing
