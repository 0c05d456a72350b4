// SPDX-License-Identifier: Apache-2.0
// Bytes of a model and its trainer, by purpose.
#include <algorithm>

#include "cli/plan_request.hpp"

namespace outboard::cli {
namespace {

constexpr std::uint64_t kLogitGradientBytes = 4;

std::vector<PlannedParameter> parameters_of(const std::vector<Tensor>& tensors, DType dtype) {
  std::vector<PlannedParameter> parameters;
  parameters.reserve(tensors.size());
  for (const Tensor& tensor : tensors) parameters.push_back({tensor.elems, dtype});
  return parameters;
}

/// Everything outside the layers, and two layers of a ring.
std::uint64_t gradient_elems(const std::vector<Tensor>& tensors, const PlanRequest& request) {
  std::uint64_t elems = 0;
  for (const Tensor& tensor : tensors) {
    const bool in_ring = tensor.layer != Tensor::kNoLayer && tensor.layer >= 2;
    if (!request.gradient_ring || !in_ring) elems += tensor.elems;
  }
  return elems;
}

/// Widths of what one layer keeps for its backward beside its input, for one token: outputs of both
/// norms, queries, keys, values, attention's output, the sum between the halves, and the
/// feed-forward layer's inner values.
std::uint64_t layer_widths(const ModelShape& shape) {
  return 3 * shape.width + 2 * shape.query_width() + 2 * shape.kv_width() +
         (shape.gated ? 3 : 2) * shape.inner;
}

std::uint64_t activation_estimate(const ModelShape& shape, const PlanRequest& request) {
  const std::uint64_t tokens = (request.tokens + request.micro_batches - 1) / request.micro_batches;
  const std::uint64_t inputs = (shape.layers + 1) * shape.width;
  const std::uint64_t inside = (request.checkpointing ? 1 : shape.layers) * layer_widths(shape);
  const std::uint64_t gradients = 2 * shape.width + shape.inner;
  const std::uint64_t element = dtype_bytes(request.dtype);
  std::uint64_t bytes = tokens * (inputs + inside + gradients) * element;
  if (request.whole_logits) bytes += tokens * shape.vocab * (element + kLogitGradientBytes);
  return bytes;
}

void add_ledger(const MemoryLedger& ledger, MemoryPlan& plan) {
  for (const LedgerEntry& entry : ledger.entries) {
    std::vector<Bytes>& place = entry.place == MemoryPlace::device        ? plan.device
                                : entry.place == MemoryPlace::host_pinned ? plan.pinned
                                                                          : plan.pageable;
    const std::string purpose =
        entry.place == MemoryPlace::device ? "engine: " + entry.purpose : entry.purpose;
    const auto same = [&](const Bytes& other) { return other.purpose == purpose; };
    const auto found = std::ranges::find_if(place, same);
    if (found == place.end()) {
      place.push_back({purpose, entry.bytes});
    } else {
      found->bytes += entry.bytes;  // of another node
    }
  }
}

}  // namespace

Config config_of(const PlanRequest& request) {
  Config config;
  config.bucket_bytes = static_cast<std::size_t>(request.bucket_bytes);
  config.schedule = request.schedule;
  if (request.schedule == Schedule::open) config.loss_scaling.dynamic = false;
  if (request.device_fraction > 0.0) {
    config.placement = Placement::fraction;
    config.device_fraction = request.device_fraction;
  }
  return config;
}

std::uint64_t sum_of(const std::vector<Bytes>& entries) {
  std::uint64_t sum = 0;
  for (const Bytes& entry : entries) sum += entry.bytes;
  return sum;
}

MemoryPlan plan_bytes(const ModelShape& shape, const PlanRequest& request) {
  const std::vector<Tensor> tensors = tensors_of(shape, request.context);
  const std::uint64_t element = dtype_bytes(request.dtype);
  std::uint64_t parameters = 0;
  for (const Tensor& tensor : tensors) parameters += tensor.elems;
  const std::uint64_t activations =
      request.activation_bytes.value_or(activation_estimate(shape, request));
  MemoryPlan plan;
  plan.device = {
      {"weights", parameters * element},
      {request.gradient_ring ? "gradients, ring of two layers" : "gradients, all",
       gradient_elems(tensors, request) * element},
      {request.activation_bytes ? "activations, as given" : "activations, estimated", activations}};
  add_ledger(plan_memory(parameters_of(tensors, request.dtype), request.nodes, config_of(request)),
             plan);
  plan.without_offload = parameters * (2 * element + kStateBytes) + activations;
  plan.checkpoint = parameters * kStateBytes;
  return plan;
}

}  // namespace outboard::cli
