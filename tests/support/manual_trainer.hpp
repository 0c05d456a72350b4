// SPDX-License-Identifier: Apache-2.0
/// A trainer in single calls: a test hands it each gradient as numbers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "outboard/outboard.hpp"
#include "support/device_memory.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {

class ManualTrainer {
 public:
  using State = TinyTrainer::State;
  /// Gradients as the backward leaves them: times the loss scale.
  using Gradients = std::vector<std::pair<ParameterId, std::vector<float>>>;

  explicit ManualTrainer(const Config& config, const sim::Options& device = virtual_device())
      : ManualTrainer(config, sim::Gpu(device)) {}
  ManualTrainer(const Config& config, const sim::Gpu& device)
      : gpu(device), stream(gpu.create_stream("trainer")) {
    engine = std::make_unique<Engine>(gpu.device(), config);
  }
  ~ManualTrainer() {
    engine.reset();
    gpu.destroy_stream(stream);
  }
  ManualTrainer(const ManualTrainer&) = delete;
  ManualTrainer& operator=(const ManualTrainer&) = delete;

  /// Device memory with these values in FP16, owned by this trainer.
  void* make(const std::vector<float>& values) {
    buffers_.emplace_back(gpu, values.size() * 2);
    upload<std::uint16_t>(gpu, buffers_.back().get(), to_halves(values), stream);
    return buffers_.back().get();
  }
  ParameterId add(const std::string& name, const std::vector<float>& initial, GroupId group,
                  std::span<const float> master = {}) {
    ParameterSpec spec;
    spec.name = name;
    spec.dtype = dtype;
    spec.elems = initial.size();
    spec.data = make(initial);
    spec.group = group;
    spec.master = master;
    const ParameterId id = engine->add_parameter(spec);
    parameters_[id] = {spec.data, initial.size()};
    return id;
  }
  [[nodiscard]] void* weight(ParameterId id) const { return parameters_.at(id).data; }

  /// Uploads a gradient to a buffer of its own and hands it in.
  void give(ParameterId id, const std::vector<float>& gradient) {
    engine->gradient_ready(id, make(gradient), stream);
  }
  void wait_all() {
    for (const auto& [id, parameter] : parameters_) engine->wait(id, stream);
  }
  StepResult step(const Gradients& gradients) {
    wait_all();
    for (const auto& [id, gradient] : gradients) give(id, gradient);
    return engine->step();
  }

  std::vector<std::uint16_t> weight_bits(ParameterId id) {
    engine->wait(id, stream);
    return download<std::uint16_t>(gpu, weight(id), parameters_.at(id).elems, stream);
  }
  State state(ParameterId id) {
    const std::size_t elems = parameters_.at(id).elems;
    State out{
        std::vector<float>(elems), std::vector<float>(elems), std::vector<float>(elems), 0, {}};
    engine->read_state(id, {.master = out.p, .exp_avg = out.m, .exp_avg_sq = out.v});
    out.t = engine->step_count(id);
    out.weight = weight_bits(id);
    return out;
  }

  sim::Gpu gpu;
  NativeStream stream;
  DType dtype = DType::f16;  ///< of the parameters added from here on

 private:
  struct Parameter {
    void* data = nullptr;
    std::size_t elems = 0;
  };
  std::vector<DeviceBuffer> buffers_;
  std::map<ParameterId, Parameter> parameters_;

 public:
  std::unique_ptr<Engine> engine;  ///< destroyed before the memory under it
};

}  // namespace outboard::testing
