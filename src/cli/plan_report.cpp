// SPDX-License-Identifier: Apache-2.0
// Times of a model's steps, and what follows from them.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "cli/command_line.hpp"
#include "cli/plan_request.hpp"
#include "cli/report.hpp"

namespace outboard::cli {
namespace {

constexpr double kHidden = 0.95;  // of the speed without offload
constexpr double kCopyUs = 10.0;
constexpr double kKernelUs = 5.0;
constexpr double kSumBytes = 10.0;  // a 16-bit gradient, its sum read and written
constexpr std::array<std::pair<const char*, Schedule>, 4> kSchedules = {
    {{"exact", Schedule::exact},
     {"blocking", Schedule::blocking},
     {"open", Schedule::open},
     {"serial", Schedule::serial}}};
constexpr std::array<std::uint64_t, 5> kTokenRows = {4096, 8192, 16384, 32768, 65536};

PlanningMachine machine_of(const PlanRequest& request) {
  PlanningMachine machine;
  machine.link_down_bytes_per_s = machine.link_up_bytes_per_s = request.link.value;
  machine.node_elems_per_s.assign(request.nodes, request.host_update.value / request.nodes);
  machine.device_elems_per_s = request.device_memory.value / update_bytes(request.dtype);
  machine.norm_elems_per_s =
      request.device_memory.value / static_cast<double>(dtype_bytes(request.dtype));
  machine.device_sums_per_s = request.device_memory.value / kSumBytes;
  machine.copy_us = kCopyUs;
  machine.kernel_us = kKernelUs;
  return machine;
}

PlannedStep step_at(const PlanRequest& request, std::uint64_t tokens,
                    const PlannedPlacement& placement, Timeline* timeline = nullptr) {
  return plan_step(plan_work(request, tokens), machine_of(request), config_of(request), placement,
                   timeline);
}

JudgedStep judged_step(const PlanRequest& request, const PlannedPlacement& placement) {
  JudgedStep step{step_at(request, request.tokens, placement)};
  step.without_gate_us = step.step_us;
  if (request.schedule != Schedule::exact) return step;
  PlanRequest open = request;
  open.schedule = Schedule::open;
  step.without_gate_us = step_at(open, request.tokens, placement).step_us;
  return step;
}

const PlannedPlacement kAllOnDevice = {.kind = PlannedPlacement::Kind::fraction,
                                       .device_fraction = 1.0};

PlannedPlacement best_within(std::uint64_t free_bytes) {
  return {.kind = PlannedPlacement::Kind::automatic, .device_budget_bytes = free_bytes};
}

/// As if there were room for all state on the device.
double without_offload_us(const PlanRequest& request, std::uint64_t tokens) {
  return step_at(request, tokens, kAllOnDevice).step_us;
}

SpeedRow speed_at(const PlanRequest& request, std::uint64_t tokens) {
  return {tokens, step_at(request, tokens, asked_placement(request)).step_us,
          without_offload_us(request, tokens)};
}

/// Fewest tokens, to about 1 %; none below 2^26.
std::optional<std::uint64_t> tokens_to_hide(const PlanRequest& request) {
  const auto hidden = [&](double tokens) {
    return speed_at(request, static_cast<std::uint64_t>(tokens)).fraction() >= kHidden;
  };
  double low = 1.0;
  double high = 67'108'864.0;
  if (!hidden(high)) return std::nullopt;
  while (high > low * 1.01 && high - low > 1.0) {
    const double middle = std::sqrt(low * high);
    (hidden(middle) ? high : low) = middle;
  }
  return static_cast<std::uint64_t>(high);
}

/// Most parameters for which `fits`, to about 1 %.
template <class Fits>
std::uint64_t most_parameters(double high, Fits fits) {
  double low = 1.0;
  while (high > low * 1.01 && high - low > 1.0) {
    const double middle = std::sqrt(low * high);
    (fits(static_cast<std::uint64_t>(middle)) ? low : high) = middle;
  }
  return static_cast<std::uint64_t>(low);
}

/// With all state on the host.
void find_largest(PlanReport& report) {
  PlanRequest request = report.request;
  request.device_fraction = 0.0;
  const double most = static_cast<double>(request.device_bytes) / 2.0 + 2.0;  // weights alone
  bool host_too_small = false;
  report.largest = most_parameters(most, [&](std::uint64_t parameters) {
    const MemoryPlan plan = plan_bytes(stand_in(parameters), request);
    const bool on_device = sum_of(plan.device) <= request.device_bytes;
    const bool on_host = plan.host() <= request.host_bytes;
    if (!on_device || !on_host) host_too_small = on_device;  // of the smallest that does not fit
    return on_device && on_host;
  });
  report.largest_limit = host_too_small ? "host memory" : "device memory";
  report.largest_without_offload = most_parameters(most, [&](std::uint64_t parameters) {
    return plan_bytes(stand_in(parameters), request).without_offload <= request.device_bytes;
  });
}

/// Of the device, where any bucket may become resident: unless the engine adds up, its gradient
/// then has a buffer.
std::uint64_t bytes_for_any_state(PlanRequest request) {
  request.device_fraction = 0.0;
  if (!has_sums(request)) request.gradient_ring = false;
  const std::uint64_t beside = sum_of(plan_bytes(request.shape, request).device);
  return beside < request.device_bytes ? request.device_bytes - beside : 0;
}

/// Pieces of one model's work.
class Work {
 public:
  Work(const PlanRequest& request, std::uint64_t tokens)
      : request_(request),
        tensors_(tensors_of(request.shape, request.context)),
        layer_flops_(request.shape.layers, 0.0),
        us_per_flop_(static_cast<double>(tokens) / static_cast<double>(request.micro_batches) *
                     1e6 / request.compute.value) {
    for (const Tensor& tensor : tensors_) {
      if (tensor.layer != Tensor::kNoLayer) layer_flops_[tensor.layer] += tensor.forward_flops;
    }
  }

  PlannedModel make() {
    for (const Tensor& tensor : tensors_)
      model_.parameters.push_back({tensor.elems, request_.dtype});
    add_forward();
    add_backward();
    if (!has_sums(request_)) add_other_micro_batches();
    return std::move(model_);
  }

 private:
  [[nodiscard]] double head_us() const { return tied_head_flops(request_.shape) * us_per_flop_; }

  void add_forward() {
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      model_.forward.push_back({tensors_[i].forward_flops * us_per_flop_, i});
    }
    if (request_.shape.tied) model_.forward.push_back({head_us(), 0});
  }
  /// Twice the forward, and with checkpointing a layer's forward once more before its backward.
  void add_backward() {
    if (request_.shape.tied) model_.backward.push_back({2 * head_us(), 0});
    std::uint64_t layer = Tensor::kNoLayer;
    for (auto i = static_cast<std::uint32_t>(tensors_.size()); i-- > 0;) {
      const Tensor& tensor = tensors_[i];
      if (request_.checkpointing && tensor.layer != layer && tensor.layer != Tensor::kNoLayer) {
        model_.backward.push_back(
            {layer_flops_[tensor.layer] * us_per_flop_, PlannedWork::kNoParameter});
      }
      layer = tensor.layer;
      model_.backward.push_back({2 * tensor.forward_flops * us_per_flop_, i});
    }
  }
  /// The first one's forward and the last one's backward overlap with the engine; the others lie
  /// between.
  void add_other_micro_batches() {
    double us = 0.0;
    for (const PlannedWork& piece : model_.forward) us += piece.us;
    for (const PlannedWork& piece : model_.backward) us += piece.us;
    us *= static_cast<double>(request_.micro_batches - 1);
    if (us > 0.0) {
      model_.backward.insert(model_.backward.begin(), {us, PlannedWork::kNoParameter});
    }
  }

  const PlanRequest& request_;
  std::vector<Tensor> tensors_;
  std::vector<double> layer_flops_;  ///< forward, for one token
  double us_per_flop_;
  PlannedModel model_;
};

}  // namespace

const char* name_of(Schedule schedule) {
  for (const auto& [name, value] : kSchedules) {
    if (value == schedule) return name;
  }
  return "unknown";
}

Schedule schedule_named(const std::string& name) {
  std::string names;
  for (const auto& [known, value] : kSchedules) {
    if (name == known) return value;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  throw UsageError("no schedule is called \"" + name + "\"; there are " + names);
}

const char* name_of(Known known) {
  switch (known) {
    case Known::given:
      return "given";
    case Known::measured:
      return "measured";
    case Known::assumed:
      return "assumed";
  }
  return "unknown";
}

PlannedModel plan_work(const PlanRequest& request, std::uint64_t tokens) {
  return Work(request, tokens).make();
}

std::string limit_of(const JudgedStep& step) {
  if (step.exposed_us() < (1.0 - kHidden) * step.step_us) return "compute: offload is hidden";
  if (step.step_us - step.without_gate_us >= 0.5 * step.exposed_us()) {
    return "the gate: no update begins before the norm of all gradients is known";
  }
  struct Part {
    double us;
    const char* what;
  };
  const std::array<Part, 4> parts = {
      {{step.exposed_update_us, "the update on the host"},
       {step.exposed_gradients_us + step.exposed_gate_us, "the link, device to host"},
       {step.exposed_weights_us, "the link, host to device"},
       {step.exposed_device_us, "the engine's kernels on the device"}}};
  return std::ranges::max_element(parts, {}, &Part::us)->what;
}

std::vector<Timeline> plan_timelines(const PlanRequest& request, std::uint64_t free_bytes) {
  struct Case {
    const char* name;
    PlannedPlacement placement;
  };
  const bool host = request.device_fraction == 0.0;
  const std::array<Case, 3> cases = {
      {{host ? "all state on the host" : "state as asked", asked_placement(request)},
       {"best placement", best_within(free_bytes)},
       {"all state on the device, were there room", kAllOnDevice}}};
  std::vector<Timeline> timelines;
  for (const Case& c : cases) {
    Timeline& timeline = timelines.emplace_back();
    const PlannedStep step = step_at(request, request.tokens, c.placement, &timeline);
    timeline.name = print("%s: %.2f ms, predicted", c.name, step.step_us / 1e3);
  }
  return timelines;
}

PlanReport make_plan_report(const PlanRequest& request) {
  PlanReport report;
  report.request = request;
  report.parameters = count_parameters(request.shape);
  report.memory = plan_bytes(request.shape, request);
  report.host = judged_step(request, {});
  report.asked = judged_step(request, asked_placement(request));
  report.save = plan_save(request, report.memory.checkpoint, report.asked.step_us);
  report.free_bytes = bytes_for_any_state(request);
  report.best = judged_step(request, best_within(report.free_bytes));
  report.without_offload_us = without_offload_us(request, request.tokens);
  for (const std::uint64_t tokens : kTokenRows) report.speed.push_back(speed_at(request, tokens));
  report.tokens_to_hide = tokens_to_hide(request);
  find_largest(report);
  return report;
}

}  // namespace outboard::cli
