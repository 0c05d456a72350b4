// SPDX-License-Identifier: Apache-2.0
/// What a training run of either language model is asked for, and the device and engine that
/// follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "flags.hpp"
#include "outboard/outboard.hpp"

namespace example {

/// Where optimizer state is kept.
struct Offload {
  outboard::Placement placement = outboard::Placement::host;
  double host_share = 1.0;  ///< of Placement::fraction; the rest is on the device

  [[nodiscard]] bool all_on_host() const { return placement == outboard::Placement::host; }
};

struct RunOptions {
  std::vector<std::filesystem::path> data;
  std::size_t device_memory = 0;
  Offload offload;
  outboard::Schedule schedule = outboard::Schedule::exact;
  std::optional<double> loss_scale;  ///< fixed; nullopt: dynamic
  std::size_t bucket = std::size_t{256} << 10;
  std::uint32_t threads = 0;
  std::string topology;
  std::optional<std::uint64_t> virtual_seed;

  std::uint64_t steps = 1;
  std::uint64_t seed = 1;
  double lr = 1e-3;
  double max_grad_norm = 1.0;

  std::string log;  ///< one JSON per step; "": none
  bool digest = false;
  std::uint64_t print_every = 100;
  std::uint64_t eval_every = 500;
  double temperature = 0.8;
};

/// How --offload is said.
[[nodiscard]] std::string spell_offload(const Offload& offload);
/// What it means to the engine.
void place_state(const Offload& offload, outboard::Config& config);
/// How --schedule is said.
[[nodiscard]] const char* spell_schedule(outboard::Schedule schedule);

/// @throws UsageError naming both options, if the schedule cannot do what another option asks.
void check_schedule(const RunOptions& options);

/// More than anybody needs, and no typing error by far.
inline constexpr std::uint64_t kBillion = 1000000000;

/// `device_memory_shown`: as Flags::bytes().
void add_device_flags(Flags& flags, RunOptions& options, const std::string& device_memory_shown);
void add_training_flags(Flags& flags, RunOptions& options);
void add_output_flags(Flags& flags, RunOptions& options);

// In virtual time a kernel is charged as on a device of this speed, about that of one core.
inline constexpr double kVirtualFlops = 5e10;
[[nodiscard]] outboard::sim::Options device_options(const RunOptions& options);
/// Warnings and errors go to standard error.
[[nodiscard]] outboard::Config engine_config(const RunOptions& options);

}  // namespace example
