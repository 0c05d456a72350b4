// SPDX-License-Identifier: Apache-2.0
/// How much memory a model takes, without making one, and which of the presets fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "options.hpp"
#include "shape.hpp"

namespace gpt {

/// How the engine is to add up so many micro-batches: one needs no sums.
[[nodiscard]] outboard::Accumulate accumulate_of(std::uint32_t accumulation);

/// What is kept where.
struct MemoryMode {
  example::Offload offload{};  ///< automatic: at first as with all state on the host
  bool checkpointing = true;
  GradBuffers grad_buffers = GradBuffers::ring;
  std::uint32_t accumulation = 1;
  std::size_t bucket = std::size_t{256} << 10;  ///< bytes of gradients
};
[[nodiscard]] MemoryMode memory_mode(const Options& options);

/// Bytes of a training run by purpose, on a machine of one NUMA node: exact up to 262,144 buckets,
/// beyond them to a thousandth.
struct MemoryNeed {
  std::size_t weights = 0, gradients = 0, activations = 0;  ///< device, the model's
  /// Device, the engine's: scalars; without offload FP32 state, and sums of several micro-batches.
  std::size_t device_engine = 0;
  std::size_t device_rounding = 0;  ///< what whole steps of 256 bytes for each allocation add
  std::size_t host = 0;             ///< the engine's ledger of host memory

  [[nodiscard]] std::size_t device() const {
    return weights + gradients + activations + device_engine + device_rounding;
  }
};
[[nodiscard]] MemoryNeed memory_need(const GptShape& shape, const MemoryMode& mode);

/// All without offload: 16 bytes per parameter and every activation.
[[nodiscard]] std::size_t device_bytes_without_offload(const GptShape& shape);

struct FitLimits {
  std::size_t device = 0, host = 0;
};
struct FitReport {
  std::string text;     ///< one line per preset and a last one that says which is the largest
  std::string largest;  ///< "": none fits
};
/// Every preset, with the sizes that `options` overrides.
[[nodiscard]] FitReport fit_presets(const Options& options, const FitLimits& limits);

/// Memory of this machine.
[[nodiscard]] std::size_t physical_memory();

}  // namespace gpt
