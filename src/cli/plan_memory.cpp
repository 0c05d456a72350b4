// SPDX-License-Identifier: Apache-2.0
// Bytes of a model and its trainer, by purpose.
#include <algorithm>
#include <functional>

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

/// For each parameter, whether its gradient must stay until step() reads it on the device. Neither
/// speeds nor times matter.
std::vector<bool> resident_parameters(const std::vector<PlannedParameter>& parameters,
                                      const PlanRequest& request) {
  std::vector<bool> none(parameters.size());
  // A sum takes the gradient, wherever it is.
  if (request.device_fraction == 0.0 || has_sums(request)) return none;
  PlannedModel model{parameters, {}, {}};
  for (std::uint32_t i = 0; i < parameters.size(); ++i) model.backward.push_back({0.0, i});
  return plan_step(model, {.node_elems_per_s = {0.0}}, config_of(request), asked_placement(request))
      .resident_parameters;
}

/// Elements of gradients that have a buffer at one time.
struct Gradients {
  std::uint64_t ring = 0;      ///< everything outside the layers, and the two largest layers
  std::uint64_t resident = 0;  ///< all of what is read where it is
};

Gradients gradients_in_ring(const std::vector<Tensor>& tensors, const std::vector<bool>& resident,
                            std::uint64_t layers) {
  Gradients gradients;
  std::vector<std::uint64_t> layer_elems(layers + 2, 0);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    std::uint64_t& elems = resident[i]                        ? gradients.resident
                           : tensor.layer == Tensor::kNoLayer ? gradients.ring
                                                              : layer_elems[tensor.layer];
    elems += tensor.elems;
  }
  std::ranges::partial_sort(layer_elems, layer_elems.begin() + 2, std::greater<>());
  gradients.ring += layer_elems[0] + layer_elems[1];
  return gradients;
}

void add_gradients(const ModelShape& shape, const std::vector<Tensor>& tensors,
                   const std::vector<PlannedParameter>& parameters, const PlanRequest& request,
                   std::vector<Bytes>& device) {
  const std::uint64_t element = dtype_bytes(request.dtype);
  // What the trainer adds up must stay there.
  const bool added_up = request.micro_batches > 1 && !has_sums(request);
  if (!request.gradient_ring || added_up) {
    device.push_back({"gradients, all", count_parameters(shape) * element});
    return;
  }
  const Gradients gradients =
      gradients_in_ring(tensors, resident_parameters(parameters, request), shape.layers);
  device.push_back({"gradients, ring of two layers", gradients.ring * element});
  if (gradients.resident == 0) return;
  device.push_back({"gradients of resident state", gradients.resident * element});
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
  config.accumulate = request.accumulate;
  config.accumulation = static_cast<std::uint32_t>(request.micro_batches);
  if (request.schedule == Schedule::open) config.loss_scaling.dynamic = false;
  if (request.device_fraction > 0.0) {
    config.placement = Placement::fraction;
    config.device_fraction = request.device_fraction;
  }
  return config;
}

PlannedPlacement asked_placement(const PlanRequest& request) {
  if (request.device_fraction == 0.0) return {};
  return {.kind = PlannedPlacement::Kind::fraction, .device_fraction = request.device_fraction};
}

std::uint64_t sum_of(const std::vector<Bytes>& entries) {
  std::uint64_t sum = 0;
  for (const Bytes& entry : entries) sum += entry.bytes;
  return sum;
}

MemoryPlan plan_bytes(const ModelShape& shape, const PlanRequest& request) {
  const std::vector<Tensor> tensors = tensors_of(shape, request.context);
  const std::uint64_t element = dtype_bytes(request.dtype);
  const std::vector<PlannedParameter> parameters = parameters_of(tensors, request.dtype);
  const std::uint64_t elems = count_parameters(shape);
  const std::uint64_t activations =
      request.activation_bytes.value_or(activation_estimate(shape, request));
  MemoryPlan plan;
  plan.device.push_back({"weights", elems * element});
  add_gradients(shape, tensors, parameters, request, plan.device);
  plan.device.push_back(
      {request.activation_bytes ? "activations, as given" : "activations, estimated", activations});
  add_ledger(plan_memory(parameters, request.nodes, config_of(request)), plan);
  const std::uint64_t sums = has_sums(request) ? sizeof(float) : 0;
  plan.without_offload = elems * (2 * element + kStateBytes + sums) + activations;
  plan.checkpoint = elems * kStateBytes;
  return plan;
}

}  // namespace outboard::cli
