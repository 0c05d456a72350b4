// SPDX-License-Identifier: Apache-2.0
#include "step_bench/step_trainer.hpp"

#include <algorithm>
#include <cstddef>

#include "outboard/error.hpp"
#include "outboard/half.hpp"

namespace outboard::step_bench {
namespace {

constexpr std::uint64_t kStateBytes = 12;
constexpr std::uint64_t kElementBytes = 2;

sim::Options device_options(const Workload& workload, const Way& way, sim::Mode mode) {
  sim::Options options;
  options.mode = mode;
  options.seed = workload.seed;
  const std::uint64_t params = workload.total_params();
  const std::uint64_t sums = workload.micro_batches > 0 ? sizeof(float) : 0;
  const bool resident = way.device_fraction(workload) > 0.0;
  // Each tensor and bucket is rounded up, and has scalars.
  const std::uint64_t around = (std::uint64_t{64} << 20) + workload.layers * 16'384;
  options.memory_bytes = static_cast<std::size_t>(
      params * (2 * kElementBytes + (resident ? kStateBytes + sums : 0)) + around);
  options.rates.link_down_bytes_per_s = workload.link_down_bytes_per_s;
  options.rates.link_up_bytes_per_s = workload.link_up_bytes_per_s;
  options.rates.device_bytes_per_s = workload.device_bytes_per_s;
  options.rates.host_elems_per_s = {workload.host_params_per_s / workload.nodes};
  return options;
}

/// Small values that differ: what they are does not change a time.
std::vector<std::uint16_t> pattern(std::uint64_t elems, std::uint32_t salt, float scale) {
  std::vector<std::uint16_t> halves(static_cast<std::size_t>(elems));
  std::uint32_t state = salt * 2'654'435'761U + 1U;
  for (std::uint16_t& half : halves) {
    state = state * 1'664'525U + 1'013'904'223U;
    half = half_from_float(scale * (static_cast<float>(state >> 24) - 127.5F) / 128.0F);
  }
  return halves;
}

}  // namespace

StepTrainer::StepTrainer(const Workload& workload, const Way& way, sim::Mode mode)
    : workload_(workload),
      gpu_(device_options(workload, way, mode)),
      stream_(gpu_.create_stream("trainer")) {
  allocate();
  make_engine(way, mode);
  turn(kWarmSteps);
}

StepTrainer::~StepTrainer() {
  engine_.reset();  // before the weights that it writes
}

void StepTrainer::allocate() {
  const auto bytes = static_cast<std::size_t>(workload_.params * kElementBytes);
  for (std::uint32_t i = 0; i < workload_.layers; ++i) {
    void* weight = gpu_.allocate(bytes);
    void* gradient = gpu_.allocate(bytes);
    const std::vector<std::uint16_t> weights = pattern(workload_.params, 2 * i, 0.02F);
    const std::vector<std::uint16_t> gradients = pattern(workload_.params, 2 * i + 1, 1e-3F);
    gpu_.copy_to_device(weight, std::as_bytes(std::span(weights)), stream_);
    gpu_.copy_to_device(gradient, std::as_bytes(std::span(gradients)), stream_);
    gpu_.synchronize();
    layers_.push_back({weight, gradient});
  }
}

void StepTrainer::make_engine(const Way& way, sim::Mode mode) {
  Config config = config_of(way, workload_);
  if (mode == sim::Mode::virtual_time) {
    config.host.threads_per_node = 1;
    config.host.synthetic_topology = "numa:" + std::to_string(workload_.nodes) + " core:1 pu:1";
  }
  engine_ = std::make_unique<Engine>(gpu_.device(), config);
  const GroupId group = engine_->add_group(AdamW{});
  for (std::uint32_t i = 0; i < workload_.layers; ++i) {
    parameters_.push_back(engine_->add_parameter({.name = "layer " + std::to_string(i),
                                                  .elems = workload_.params,
                                                  .data = layers_[i].weight,
                                                  .group = group}));
  }
  engine_->commit();
}

void StepTrainer::start_recording() {
  const std::size_t pieces = workload_.total_params() * kElementBytes / bucket_bytes_of(workload_) +
                             2U * workload_.layers + 16U;
  // Kernels and copies of a layer; copies, updates and waits of a bucket.
  gpu_.start_recording(16 * pieces * (workload_.steps + 1) * workload_.passes());
}

void StepTrainer::turn(std::uint32_t steps) {
  synchronize();
  forward();
  for (std::uint32_t i = 0; i < steps; ++i) {
    backward();
    for (std::uint32_t pass = 1; pass < workload_.passes(); ++pass) {
      forward();
      backward();
    }
    (void)engine_->step();
    forward();
  }
  synchronize();
}

void StepTrainer::forward() {
  const sim::Duration each(layer_forward_ns(workload_));
  for (const ParameterId parameter : parameters_) {
    engine_->wait(parameter, stream_);
    gpu_.launch(
        stream_, each, [](sim::KernelView&) {}, "forward");
  }
}

void StepTrainer::backward() {
  const sim::Duration each(layer_backward_ns(workload_));
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    if (given_) engine_->wait_gradient_taken(parameters_[i], stream_);
    gpu_.launch(
        stream_, each, [](sim::KernelView&) {}, "backward");
    engine_->gradient_ready(parameters_[i], layers_[i].gradient, stream_);
  }
  given_ = true;
}

void StepTrainer::synchronize() {
  engine_->synchronize();
  gpu_.synchronize();
}

Timeline StepTrainer::recording() const {
  Timeline timeline = gpu_.recording();
  if (timeline.dropped == 0) return timeline;
  throw Error(ErrorCode::out_of_memory,
              "bench step: " + std::to_string(timeline.dropped) +
                  " spans found no room in the recording; use fewer layers or larger buckets");
}

}  // namespace outboard::step_bench
