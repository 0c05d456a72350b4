// SPDX-License-Identifier: Apache-2.0
#include "fit.hpp"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "../common/format.hpp"
#include "outboard/planning.hpp"
#include "presets.hpp"

namespace gpt {
namespace {

using example::print;

/// Buckets laid out one by one; were there more, they are planned larger. That changes less than a
/// thousandth, and planning takes little memory itself however large the model.
constexpr std::size_t kMostPlanned = std::size_t{1} << 18;

std::string gib(std::size_t bytes) {
  return print("%.2f", static_cast<double>(bytes) / static_cast<double>(std::size_t{1} << 30));
}

/// What the engine's ledger will say.
outboard::MemoryLedger engine_memory(const GptShape& shape, const MemoryMode& mode) {
  std::vector<outboard::PlannedParameter> parameters;
  for (const std::size_t elems : shape.parameter_sizes()) parameters.push_back({elems});
  outboard::Config config;
  example::place_state(mode.offload, config);
  config.bucket_bytes = std::max(mode.bucket, shape.weight_bytes() / kMostPlanned);
  config.accumulation = mode.accumulation;
  config.accumulate = accumulate_of(mode.accumulation);
  return outboard::plan_memory(parameters, 1, config);
}

}  // namespace

outboard::Accumulate accumulate_of(std::uint32_t accumulation) {
  return accumulation > 1 ? outboard::Accumulate::host : outboard::Accumulate::trainer;
}

MemoryMode memory_mode(const Options& options) {
  return {.offload = options.offload,
          .checkpointing = options.checkpointing,
          .grad_buffers = options.grad_buffers,
          .accumulation = options.accumulation,
          .bucket = options.bucket};
}

MemoryNeed memory_need(const GptShape& shape, const MemoryMode& mode) {
  MemoryNeed need;
  need.weights = shape.weight_bytes();
  need.gradients = shape.gradient_bytes(mode.grad_buffers);
  need.activations = shape.activation_bytes(mode.checkpointing);
  need.device_rounding = shape.device_bytes(mode.grad_buffers, mode.checkpointing) -
                         (need.weights + need.gradients + need.activations);
  for (const outboard::LedgerEntry& entry : engine_memory(shape, mode).entries) {
    if (entry.place == outboard::MemoryPlace::device) {
      need.device_engine += entry.bytes;
      need.device_rounding += device_rounded(entry.bytes) - entry.bytes;
    } else {
      need.host += entry.bytes;
    }
  }
  return need;
}

std::size_t device_bytes_without_offload(const GptShape& shape) {
  return memory_need(shape, {.offload = {outboard::Placement::device_resident},
                             .checkpointing = false,
                             .grad_buffers = GradBuffers::full})
      .device();
}

FitReport fit_presets(const Options& options, const FitLimits& limits) {
  FitReport report;
  report.text = print("%-6s %14s %12s %12s %22s  %s\n", "preset", "parameters", "device GiB",
                      "host GiB", "GiB without offload", "");
  for (const Preset& preset : presets()) {
    const GptShape shape = shape_of(preset.shape, options.said, options.tokens);
    if (shape.width % shape.heads != 0) continue;
    const MemoryNeed need = memory_need(shape, memory_mode(options));
    const bool device = need.device() <= limits.device;
    const bool host = need.host <= limits.host;
    const char* verdict = device ? (host ? "fits" : "host too small") : "device too small";
    report.text += print("%-6s %14zu %12s %12s %22s  %s\n", preset.name, shape.parameter_elems(),
                         gib(need.device()).c_str(), gib(need.host).c_str(),
                         gib(device_bytes_without_offload(shape)).c_str(), verdict);
    if (device && host) report.largest = preset.name;
  }
  report.text += "limits: device " + gib(limits.device) + " GiB, host " + gib(limits.host) +
                 " GiB\nlargest that fits: " + (report.largest.empty() ? "none" : report.largest) +
                 "\n";
  return report;
}

std::size_t physical_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page)
                               : 0;
}

}  // namespace gpt
