// SPDX-License-Identifier: Apache-2.0
/// A trainer in single calls: a test hands it each gradient as numbers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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

  /// Device memory with these values in the dtype, owned by this trainer.
  void* make(const std::vector<float>& values) { return make(values, dtype); }
  void* make(const std::vector<float>& values, DType own) {
    buffers_.emplace_back(gpu, values.size() * dtype_bytes(own));
    upload<std::byte>(gpu, buffers_.back().get(), to_elements(values, own), stream);
    return buffers_.back().get();
  }
  ParameterId add(const std::string& name, const std::vector<float>& initial, GroupId group,
                  std::span<const float> master = {}, std::optional<DType> own = {}) {
    ParameterSpec spec;
    spec.name = name;
    spec.dtype = own.value_or(dtype);
    spec.elems = initial.size();
    spec.data = make(initial, spec.dtype);
    spec.group = group;
    spec.master = master;
    const ParameterId id = engine->add_parameter(spec);
    parameters_[id] = {spec.data, initial.size(), spec.dtype};
    return id;
  }
  [[nodiscard]] void* weight(ParameterId id) const { return parameters_.at(id).data; }

  /// Uploads a gradient to a buffer of its own and hands it in.
  void give(ParameterId id, const std::vector<float>& gradient) {
    const auto known = parameters_.find(id);  // a test may register parameters of its own
    const DType own = known == parameters_.end() ? dtype : known->second.dtype;
    engine->gradient_ready(id, make(gradient, own), stream);
  }
  void wait_all() {
    for (const auto& [id, parameter] : parameters_) engine->wait(id, stream);
  }
  StepResult step(const Gradients& gradients) {
    wait_all();
    for (const auto& [id, gradient] : gradients) give(id, gradient);
    return engine->step();
  }

  /// In words of 16 bits (two for each f32 element).
  std::vector<std::uint16_t> weight_bits(ParameterId id) {
    engine->wait(id, stream);
    const Parameter& parameter = parameters_.at(id);
    return download<std::uint16_t>(gpu, parameter.data,
                                   parameter.elems * dtype_bytes(parameter.dtype) / 2, stream);
  }
  std::vector<float> weights(ParameterId id) {
    const std::vector<std::uint16_t> words = weight_bits(id);
    const Parameter& parameter = parameters_.at(id);
    std::vector<float> values(parameter.elems);
    for (std::size_t e = 0; e < values.size(); ++e) {
      const auto bits = load_bits(std::as_bytes(std::span(words)), e, parameter.dtype);
      values[e] = float_of_bits(bits, parameter.dtype);
    }
    return values;
  }
  State state(ParameterId id) {
    State out;
    std::vector<float>* next = &out.p;
    for (const std::string_view name : engine->state_streams(id)) {
      std::vector<float>& values = name == "ema" ? out.ema : *next;
      values.resize(parameters_.at(id).elems);
      engine->read_state(id, name, values);
      next = next == &out.p ? &out.m : &out.v;
    }
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
    DType dtype = DType::f16;
  };
  std::vector<DeviceBuffer> buffers_;
  std::map<ParameterId, Parameter> parameters_;

 public:
  std::unique_ptr<Engine> engine;  ///< destroyed before the memory under it
};

}  // namespace outboard::testing
