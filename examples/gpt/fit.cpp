// SPDX-License-Identifier: Apache-2.0
#include "fit.hpp"

#include <unistd.h>

#include <algorithm>

#include "../common/format.hpp"
#include "presets.hpp"

namespace gpt {
namespace {

using example::print;

constexpr std::size_t kStateBytes = 12;    // master weight and two moments, FP32
constexpr std::size_t kStagingBytes = 2;   // gradient and weight share a place
constexpr std::size_t kSumBytes = 4;       // FP32 sums of several micro-batches
constexpr std::size_t kStagger = 4352;     // state stream k starts k times this into its memory
constexpr std::size_t kArrivals = 8;       // buckets on their way into those sums
constexpr std::size_t kScalarBytes = 32;   // of each tensor: of its norm 24, of overflows 8
constexpr std::size_t kDigestBytes = 8;    // beside them
constexpr std::size_t kBlockTensors = 12;  // two LayerNorms, four linear layers
constexpr std::size_t kOtherTensors = 4;   // embeddings, the last LayerNorm

std::string gib(std::size_t bytes) {
  return print("%.2f", static_cast<double>(bytes) / static_cast<double>(std::size_t{1} << 30));
}

}  // namespace

MemoryMode memory_mode(const Options& options) {
  return {.offload = options.offload,
          .checkpointing = options.checkpointing,
          .grad_buffers = options.grad_buffers,
          .accumulation = options.accumulation,
          .bucket = options.bucket};
}

MemoryNeed memory_need(const GptShape& shape, const MemoryMode& mode) {
  const std::size_t elems = shape.parameter_elems();
  MemoryNeed need;
  need.weights = shape.weight_bytes();
  need.gradients = shape.gradient_bytes(mode.grad_buffers);
  need.activations = shape.activation_bytes(mode.checkpointing);
  need.device_scalars =
      kScalarBytes * (kBlockTensors * shape.layers + kOtherTensors) + kDigestBytes;
  need.device_rounding = shape.device_bytes(mode.grad_buffers, mode.checkpointing) -
                         (need.weights + need.gradients + need.activations) +
                         device_rounded(need.device_scalars) - need.device_scalars;
  (mode.offload ? need.host_state : need.device_state) = kStateBytes * elems;
  if (mode.offload) {
    need.host_state += (1 + 2) * kStagger;
    need.host_staging = kStagingBytes * elems;
  }
  if (mode.accumulation > 1) {
    (mode.offload ? need.host_sums : need.device_sums) = kSumBytes * elems;
    const std::size_t buckets = (kStagingBytes * elems + mode.bucket - 1) / mode.bucket;
    if (mode.offload) {
      need.host_sums += 4 * kStagger;
      need.host_staging += std::min(kArrivals, buckets) * mode.bucket;
    }
  }
  return need;
}

std::size_t device_bytes_without_offload(const GptShape& shape) {
  return memory_need(shape,
                     {.offload = false, .checkpointing = false, .grad_buffers = GradBuffers::full})
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
    const bool host = need.host() <= limits.host;
    const char* verdict = device ? (host ? "fits" : "host too small") : "device too small";
    report.text += print("%-6s %14zu %12s %12s %22s  %s\n", preset.name, shape.parameter_elems(),
                         gib(need.device()).c_str(), gib(need.host()).c_str(),
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
