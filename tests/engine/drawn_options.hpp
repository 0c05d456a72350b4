// SPDX-License-Identifier: Apache-2.0
/// A small model in virtual time; speeds, delays and ways to run it, drawn from a seed.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/splits.hpp"
#include "engine/trajectory.hpp"

namespace outboard::testing {

inline const char* name_of(Schedule schedule) {
  switch (schedule) {
    case Schedule::exact:
      return "exact";
    case Schedule::blocking:
      return "blocking";
    case Schedule::open:
      return "open";
    case Schedule::serial:
      return "serial";
  }
  return "?";
}

/// Clips; step 2 overflows, and parameter 5 gets no gradient in step 1.
inline TinyOptions small_model() {
  TinyOptions options;
  options.device = virtual_device(0);
  options.device.memory_bytes = std::size_t{4} << 20;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.initial_scale = 64.0, .growth_interval = 2};
  options.config.bucket_bytes = std::size_t{8} << 10;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.groups = {AdamW{.lr = 1e-2, .weight_decay = 0.1}, AdamW{.lr = 3e-3, .beta2 = 0.95}};
  const std::array<std::uint64_t, 9> sizes = {1, 4096, 7, 12289, 300, 4097, 8192, 2000, 31};
  add_parameters(options, sizes);
  options.injected = {{.step = 2, .parameter = 3, .element = 12288, .bits = 0xFE00}};
  options.has_gradient = [](std::uint64_t step, std::uint32_t i) { return i != 5 || step != 1; };
  return options;
}

/// The `salt`-th value of a seed, uniform.
inline double between(double low, double high, std::uint64_t seed, std::uint64_t salt) {
  return low + (high - low) * static_cast<double>(mix_bits(seed, salt, 5) % 10'000) * 1e-4;
}

/// Values drawn from one seed, in a fixed order.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  /// Uniform in [0, bound).
  std::uint64_t below(std::uint64_t bound) { return mix_bits(seed_, ++count_, 0) % bound; }
  bool coin() { return below(2) == 1; }
  /// 0 (instant) or between 10^low and 10^(low+decades), evenly over the decades.
  double rate(int low, std::uint64_t decades) {
    if (below(4) == 0) return 0.0;
    double value = static_cast<double>(100 + below(900)) / 100.0;
    for (int i = 0; i < low + static_cast<int>(below(decades)); ++i) value *= 10.0;
    return value;
  }
  sim::Duration time() {
    const std::array<std::int64_t, 4> limits = {1, 1000, 100000, 5000000};
    return sim::Duration(below(static_cast<std::uint64_t>(limits.at(below(limits.size())))));
  }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

inline void draw_device(Draw& draw, sim::Options& device) {
  device.rates.link_down_bytes_per_s = draw.rate(7, 4);
  device.rates.link_up_bytes_per_s = draw.rate(7, 4);
  device.rates.device_bytes_per_s = draw.rate(8, 4);
  device.rates.copy_latency = draw.time();
  device.rates.host_elems_per_s = {draw.rate(6, 4), draw.rate(6, 4)};
  const std::array<std::int64_t, 4> delays = {0, 1000, 1000000, 50000000};
  device.max_random_delay = sim::Duration(delays.at(draw.below(delays.size())));
  device.stream_memory_ops = draw.coin();
  if (draw.below(4) == 0) device.pinned_limit_bytes = draw.below(200000);
}

inline void draw_config(Draw& draw, Config& config) {
  const std::array<Placement, 6> placements = {
      Placement::host,     Placement::host,     Placement::device_resident,
      Placement::fraction, Placement::fraction, Placement::device_streamed};
  config.placement = placements.at(draw.below(placements.size()));
  const double share = static_cast<double>(draw.below(101)) / 100.0;
  if (config.placement == Placement::fraction) config.device_fraction = share;
  if (draw.coin()) config.host.synthetic_topology = "numa:2 core:1 pu:1";
  if (draw.coin()) config.host.threads_per_node = 2;
  const std::array<std::size_t, 4> buckets = {8192, 16384, 24576, 1 << 20};
  config.bucket_bytes = buckets.at(draw.below(buckets.size()));
  if (draw.coin()) config.pinned_slots = static_cast<std::uint32_t>(1 + draw.below(8));
  config.check_waits = draw.below(3) == 0;
  // A sum of one gradient is that gradient.
  if (draw.below(4) == 0) config.accumulate = Accumulate::host;
}

/// A schedule that a model may have, one without a gate only where nothing needs it; now and then
/// Placement::automatic.
inline void draw_schedule(Draw& draw, Config& config, bool gated) {
  const std::array<Schedule, 4> schedules = {Schedule::exact, Schedule::exact, Schedule::blocking,
                                             gated ? Schedule::serial : Schedule::open};
  config.schedule = schedules.at(draw.below(schedules.size()));
  if (draw.below(8) == 0 && config.schedule != Schedule::open) {
    config.placement = Placement::automatic;
    config.device_fraction = 0.0;
  }
}

/// The trainer's times and buffers, as the engine's placement allows.
inline void draw_trainer(Draw& draw, TinyOptions& options) {
  options.forward = draw.time();
  options.backward = draw.time();
  options.second_stream = draw.coin();
  const auto ring = static_cast<std::uint32_t>(draw.below(4));
  if (!reads_in_place(options.config)) options.gradient_ring = ring;
}

/// What was drawn, for a message.
inline std::string describe(const TinyOptions& o) {
  const auto text = [](const char* name, auto value) {
    return std::string(" ") + name + "=" + std::to_string(value);
  };
  const sim::Rates& rates = o.device.rates;
  std::string out = "fraction " + std::to_string(o.config.device_fraction);
  if (o.config.placement == Placement::host) out = "host";
  if (o.config.placement == Placement::device_resident) out = "device_resident";
  if (o.config.placement == Placement::device_streamed) out = "device_streamed";
  out += std::string(" ") + name_of(o.config.schedule);
  out += o.config.accumulate == Accumulate::host ? " sums" : "";
  out += " " + o.config.host.synthetic_topology;
  out += text("threads", o.config.host.threads_per_node);
  out += text("bucket_bytes", o.config.bucket_bytes);
  out += o.config.pinned_slots ? text("pinned_slots", *o.config.pinned_slots) : "";
  out += text("check_waits", o.config.check_waits) + text("memops", o.device.stream_memory_ops);
  out += text("pinned_limit", o.device.pinned_limit_bytes) + text("ring", o.gradient_ring);
  out += text("second_stream", o.second_stream);
  out += text("down", rates.link_down_bytes_per_s) + text("up", rates.link_up_bytes_per_s);
  out += text("device", rates.device_bytes_per_s) + text("latency", rates.copy_latency.count());
  for (const double rate : rates.host_elems_per_s) out += text("node", rate);
  out += text("delay", o.device.max_random_delay.count());
  return out + text("forward", o.forward.count()) + text("backward", o.backward.count());
}

}  // namespace outboard::testing
