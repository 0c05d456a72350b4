// SPDX-License-Identifier: Apache-2.0
/// The command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "../common/arguments.hpp"

namespace text {

struct Options {
  std::vector<std::filesystem::path> data;
  std::size_t device_memory = std::size_t{12} << 20;
  bool offload = true;
  std::uint64_t steps = 1500;
  std::uint64_t seed = 1;
  std::string log;  ///< one JSON per step; "": none
  std::size_t batch = 256;
  std::size_t width = 1024;
  std::size_t embed = 32;
  double lr = 1.5e-3;
  bool serial = false;
  std::size_t bucket = std::size_t{256} << 10;
  std::uint32_t threads = 0;
  std::string topology;
  double max_grad_norm = 1.0;
  bool digest = false;
  std::optional<std::uint64_t> virtual_seed;
  std::uint64_t print_every = 100;
  std::uint64_t eval_every = 500;
  std::size_t eval_bytes = 16384;
  std::size_t sample_bytes = 240;
  double temperature = 0.8;
};

/// @return nullopt if help was asked for and printed. @throws example::UsageError.
[[nodiscard]] std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace text
