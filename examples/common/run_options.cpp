// SPDX-License-Identifier: Apache-2.0
#include "run_options.hpp"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string_view>

namespace example {
namespace {

Offload read_offload(const std::string& said) {
  if (said == "on") return {};
  if (said == "off") return {outboard::Placement::device_resident};
  if (said == "streamed") return {outboard::Placement::device_streamed};
  if (said == "auto") return {outboard::Placement::automatic};
  std::optional<double> share;
  try {
    share = parse_number(said, "--offload", Sign::not_negative);
  } catch (const UsageError&) {  // says what a number must be, and it need not be one
  }
  require(share && *share <= 1.0,
          "--offload is \"" + said +
              "\"; it must be on or off, streamed, auto, or a share from 0 to 1");
  return {outboard::Placement::fraction, *share};
}

constexpr outboard::Schedule kSchedules[] = {outboard::Schedule::exact,
                                             outboard::Schedule::blocking, outboard::Schedule::open,
                                             outboard::Schedule::serial};

outboard::Schedule read_schedule(const std::string& said) {
  for (const outboard::Schedule schedule : kSchedules) {
    if (said == spell_schedule(schedule)) return schedule;
  }
  throw UsageError("--schedule is \"" + said + "\"; it must be exact, blocking, open or serial");
}

}  // namespace

std::string spell_offload(const Offload& offload) {
  switch (offload.placement) {
    case outboard::Placement::host:
      return "on";
    case outboard::Placement::device_resident:
      return "off";
    case outboard::Placement::device_streamed:
      return "streamed";
    case outboard::Placement::automatic:
      return "auto";
    case outboard::Placement::fraction:
      return spell_number(offload.host_share);
  }
  return "?";
}

void place_state(const Offload& offload, outboard::Config& config) {
  config.placement = offload.placement;
  const bool share = offload.placement == outboard::Placement::fraction;
  config.device_fraction = share ? 1.0 - offload.host_share : 0.0;
}

const char* spell_schedule(outboard::Schedule schedule) {
  switch (schedule) {
    case outboard::Schedule::exact:
      return "exact";
    case outboard::Schedule::blocking:
      return "blocking";
    case outboard::Schedule::open:
      return "open";
    case outboard::Schedule::serial:
      return "serial";
  }
  return "?";
}

void check_schedule(const RunOptions& o) {
  if (o.schedule != outboard::Schedule::open) return;
  const std::string or_exact = ", or take --schedule exact";
  require(o.max_grad_norm == 0.0,
          "--schedule open cannot clip, and --max-grad-norm is " + spell_number(o.max_grad_norm) +
              ": updates begin before the norm of all gradients is known; give --max-grad-norm 0" +
              or_exact);
  require(o.loss_scale.has_value(),
          "--schedule open needs a fixed --loss-scale: updates begin before an overflow elsewhere "
          "is known; give --loss-scale 1024" +
              or_exact);
  require(o.offload.placement != outboard::Placement::automatic,
          "--schedule open goes with no --offload auto: its step has no moment to move state in; "
          "give --offload on, off, streamed or a share" +
              or_exact);
}

void add_device_flags(Flags& flags, RunOptions& o, const std::string& device_memory_shown) {
  constexpr std::uint64_t kLeast = 4096, kMost = std::uint64_t{1} << 50;
  flags.bytes({"--device-memory", kLeast, kMost}, o.device_memory,
              "memory of the software GPU, as 12MiB", device_memory_shown);
  flags.value("--offload", "on|off|streamed|auto|SHARE",
              "on: optimizer state in host memory; off: all of it in device memory; 0.7: so much "
              "in host memory; streamed: in host memory, updated by the device; auto: the engine "
              "chooses what is fastest",
              "on", [&o](const std::string& said) { o.offload = read_offload(said); });
  flags.value(
      "--schedule", "exact|blocking|open|serial",
      "exact: updates hide behind the next forward; blocking, serial: step() waits for them; "
      "open: they begin during backward, with --max-grad-norm 0 and --loss-scale",
      spell_schedule(o.schedule),
      [&o](const std::string& said) { o.schedule = read_schedule(said); });
  flags.bytes({"--bucket", 8192, std::uint64_t{1} << 30}, o.bucket,
              "gradients moved and updated at a time");
  flags.count({"--threads", 0, 1024}, o.threads,
              "engine threads per NUMA node, 0: the engine chooses");
  flags.text("--topology", o.topology, "a made-up machine, as \"numa:2 core:1 pu:1\"");
  flags.count({"--virtual-seed", 0, UINT64_MAX}, o.virtual_seed,
              "run in virtual time; the seed picks which ready operation goes first");
}

void add_training_flags(Flags& flags, RunOptions& o) {
  flags.count({"--steps", 1, kBillion}, o.steps, "training steps");
  flags.count({"--seed", 0, UINT64_MAX}, o.seed, "of weights, examples and the sample");
  flags.number("--lr", Sign::not_negative, o.lr, "peak learning rate");
  flags.number("--max-grad-norm", Sign::not_negative, o.max_grad_norm,
               "global-norm clipping, 0: off");
  flags.number("--loss-scale", Sign::positive, o.loss_scale, "a fixed one, a power of two",
               "dynamic");
}

void add_output_flags(Flags& flags, RunOptions& o) {
  flags.text("--log", o.log, "write one JSON per step to this file");
  flags.mark("--digest", o.digest, "show and log a digest of all state after each step");
  flags.count({"--print-every", 1, kBillion}, o.print_every, "steps between lines");
  flags.count({"--eval-every", 0, kBillion}, o.eval_every,
              "steps between held-out losses, 0: at the end");
  flags.number("--temperature", Sign::positive, o.temperature, "of the sample");
}

outboard::sim::Options device_options(const RunOptions& options) {
  outboard::sim::Options device;
  device.memory_bytes = options.device_memory;
  if (options.virtual_seed) {
    device.mode = outboard::sim::Mode::virtual_time;
    device.seed = *options.virtual_seed;
    device.max_random_delay = std::chrono::microseconds(200);
    device.rates.link_down_bytes_per_s = 2e9;
    device.rates.link_up_bytes_per_s = 2e9;
    device.rates.host_elems_per_s = {5e8};
  }
  return device;
}

outboard::Config engine_config(const RunOptions& options) {
  outboard::Config config;
  config.max_grad_norm = options.max_grad_norm;
  config.schedule = options.schedule;
  place_state(options.offload, config);
  config.bucket_bytes = options.bucket;
  config.loss_scaling.growth_interval = 500;
  if (options.loss_scale) {
    config.loss_scaling.dynamic = false;
    config.loss_scaling.initial_scale = *options.loss_scale;
    config.loss_scaling.min_scale = std::min(1.0, *options.loss_scale);
    config.loss_scaling.max_scale = std::max(config.loss_scaling.max_scale, *options.loss_scale);
  }
  config.host.synthetic_topology = options.topology;
  config.host.threads_per_node = options.threads;
  config.log = [](outboard::LogLevel level, std::string_view line) {
    if (level != outboard::LogLevel::info) std::cerr << "outboard: " << line << '\n';
  };
  return config;
}

}  // namespace example
