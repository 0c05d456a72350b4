// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "../common/random.hpp"

namespace text {

using outboard::Engine;
using outboard::NativeStream;
using outboard::sim::KernelView;

std::vector<std::size_t> ModelShape::parameter_sizes() const {
  return {kVocabulary * embed,
          kContext * embed * width,
          width,
          width * width,
          width,
          width * kVocabulary,
          kVocabulary};
}

std::size_t ModelShape::parameter_elems() const {
  const std::vector<std::size_t> sizes = parameter_sizes();
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

std::size_t ModelShape::activation_bytes() const {
  const std::size_t row = kContext * embed + 2 * width + kVocabulary;
  return batch * row * sizeof(Half) + token_bytes(batch) + sizeof(double);
}

Model::Model(outboard::sim::Gpu gpu, const ModelShape& shape, double virtual_flops_per_s)
    : gpu_(std::move(gpu)),
      shape_(shape),
      virtual_flops_per_s_(virtual_flops_per_s),
      scratch_(kVocabulary * shape.embed) {
  add_parameter("embedding", kVocabulary * shape.embed, 1.0);
  widths_.push_back(ModelShape::kContext * shape.embed);
  add_linear("hidden1", shape.width, true);
  add_linear("hidden2", shape.width, true);
  add_linear("output", kVocabulary, false);
  for (const std::size_t width : widths_) {
    activations_.emplace_back(gpu_, shape.batch * width * sizeof(Half));
  }
  tokens_ = DeviceBuffer(gpu_, ModelShape::token_bytes(shape.batch));
  loss_ = DeviceBuffer(gpu_, sizeof(double));
}

std::size_t Model::add_parameter(const std::string& name, std::size_t elems, double init_bound) {
  parameters_.push_back({.name = name,
                         .elems = elems,
                         .init_bound = init_bound,
                         .weight = DeviceBuffer(gpu_, elems * sizeof(Half)),
                         .gradient = DeviceBuffer(gpu_, elems * sizeof(Half)),
                         .id = {}});
  return parameters_.size() - 1;
}

void Model::add_linear(const std::string& name, std::size_t out, bool relu) {
  const std::size_t in = widths_.back();
  // He et al. 2015 keeps the variance through max(0, .); the output starts small, so the first
  // loss is that of a uniform guess.
  const double bound = std::sqrt((relu ? 6.0 : 0.06) / static_cast<double>(in));
  const std::size_t w = add_parameter(name + ".weight", in * out, bound);
  const std::size_t b = add_parameter(name + ".bias", out, 0.0);
  const std::size_t x = widths_.size() - 1;
  layers_.push_back({w, b, in, out, x, x + 1, relu, !layers_.empty()});
  widths_.push_back(out);
}

std::vector<std::vector<float>> Model::initial_weights(std::uint64_t seed) const {
  example::Random random(seed);
  std::vector<std::vector<float>> initial;
  for (const Parameter& parameter : parameters_) {
    std::vector<float>& values = initial.emplace_back(parameter.elems);
    for (float& value : values) {
      value = static_cast<float>(parameter.init_bound * (2.0 * random.unit() - 1.0));
    }
  }
  return initial;
}

void Model::add_to(Engine& engine, outboard::GroupId group,
                   const std::vector<std::vector<float>>& initial) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    parameter.id = engine.add_parameter({.name = parameter.name,
                                         .dtype = outboard::DType::f16,
                                         .elems = parameter.elems,
                                         .data = parameter.weight.address(),
                                         .group = group,
                                         .master = initial[i]});
  }
}

void Model::set_tokens(std::span<const std::uint8_t> tokens, NativeStream stream) {
  gpu_.copy_to_device(tokens_.address(), std::as_bytes(tokens), stream);
}

void Model::forward(Engine& engine, std::size_t rows, NativeStream stream) {
  engine.wait(parameters_[0].id, stream);
  launch(
      stream, 0.0,
      [this, rows](KernelView& view) {
        embed_forward(
            {.tokens = tokens(view, rows),
             .embed = shape_.embed,
             .table = view.as<const Half>(parameters_[0].weight.address(), parameters_[0].elems),
             .out = view.as<Half>(activations_[0].address(), rows * widths_[0])});
      },
      "embed");
  for (const Linear& layer : layers_) {
    engine.wait(parameters_[layer.w].id, stream);
    engine.wait(parameters_[layer.b].id, stream);
    queue_forward(layer, rows, stream);
  }
}

void Model::loss(std::size_t rows, double loss_scale, double* loss, NativeStream stream) {
  launch(
      stream, 0.0,
      [this, rows, loss_scale](KernelView& view) {
        SoftmaxLoss k{.tokens = tokens(view, rows),
                      .logits = view.as<Half>(activations_.back().address(), rows * kVocabulary),
                      .gradient_scale = {}};
        if (loss_scale > 0.0) {
          k.gradient_scale = static_cast<float>(loss_scale / static_cast<double>(rows));
        }
        view.as<double>(loss_.address(), 1)[0] = softmax_loss(k);
      },
      "loss");
  gpu_.copy_to_host(std::as_writable_bytes(std::span(loss, 1)), loss_.address(), stream);
}

void Model::backward(Engine& engine, std::size_t rows, NativeStream stream) {
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const Linear& layer = layers_[i];
    queue_backward_weight(layer, rows, stream);
    queue_backward_input(layer, rows, stream);
    // Behind the last reader of the weights, which an open gate may refresh from here on.
    ready(engine, layer.w, stream);
    ready(engine, layer.b, stream);
  }
  queue_embed_backward(rows, stream);
  ready(engine, 0, stream);
}

void Model::copy_logits(std::span<Half> out, NativeStream stream) {
  gpu_.copy_to_host(std::as_writable_bytes(out), activations_.back().address(), stream);
}

void Model::ready(Engine& engine, std::size_t parameter, NativeStream stream) {
  engine.gradient_ready(parameters_[parameter].id, parameters_[parameter].gradient.address(),
                        stream);
}

void Model::queue_forward(const Linear& layer, std::size_t rows, NativeStream stream) {
  launch(
      stream, 2.0 * static_cast<double>(rows * layer.in * layer.out),
      [this, layer, rows](KernelView& view) {
        linear_forward(
            {.shape = {rows, layer.in, layer.out},
             .x = view.as<const Half>(activations_[layer.x].address(), rows * layer.in),
             .w = view.as<const Half>(parameters_[layer.w].weight.address(), layer.in * layer.out),
             .b = view.as<const Half>(parameters_[layer.b].weight.address(), layer.out),
             .y = view.as<Half>(activations_[layer.y].address(), rows * layer.out),
             .relu = layer.relu},
            scratch_);
      },
      "linear forward");
}

void Model::queue_backward_weight(const Linear& layer, std::size_t rows, NativeStream stream) {
  launch(
      stream, 2.0 * static_cast<double>(rows * layer.in * layer.out),
      [this, layer, rows](KernelView& view) {
        linear_backward_weight(
            {.shape = {rows, layer.in, layer.out},
             .x = view.as<const Half>(activations_[layer.x].address(), rows * layer.in),
             .dy = view.as<const Half>(activations_[layer.y].address(), rows * layer.out),
             .dw = view.as<Half>(parameters_[layer.w].gradient.address(), layer.in * layer.out),
             .db = view.as<Half>(parameters_[layer.b].gradient.address(), layer.out)},
            scratch_);
      },
      "linear backward, weight");
}

void Model::queue_backward_input(const Linear& layer, std::size_t rows, NativeStream stream) {
  launch(
      stream, 2.0 * static_cast<double>(rows * layer.in * layer.out),
      [this, layer, rows](KernelView& view) {
        linear_backward_input(
            {.shape = {rows, layer.in, layer.out},
             .dy = view.as<const Half>(activations_[layer.y].address(), rows * layer.out),
             .w = view.as<const Half>(parameters_[layer.w].weight.address(), layer.in * layer.out),
             .x = view.as<Half>(activations_[layer.x].address(), rows * layer.in),
             .relu = layer.input_is_active},
            scratch_);
      },
      "linear backward, input");
}

void Model::queue_embed_backward(std::size_t rows, NativeStream stream) {
  launch(
      stream, 0.0,
      [this, rows](KernelView& view) {
        embed_backward(
            {.tokens = tokens(view, rows),
             .embed = shape_.embed,
             .gradient = view.as<const Half>(activations_[0].address(), rows * widths_[0]),
             .table_gradient =
                 view.as<Half>(parameters_[0].gradient.address(), parameters_[0].elems)},
            scratch_);
      },
      "embed backward");
}

void Model::launch(NativeStream stream, double flops, outboard::sim::Kernel kernel,
                   const char* name) {
  using Clock = std::chrono::steady_clock;
  outboard::sim::Duration charged{0};
  if (virtual_flops_per_s_ > 0.0) {
    charged = outboard::sim::Duration(std::llround(1e3 + flops / virtual_flops_per_s_ * 1e9));
  }
  gpu_.launch(
      stream, charged,
      [this, kernel = std::move(kernel)](KernelView& view) {
        const auto start = Clock::now();
        kernel(view);
        const auto spent = std::chrono::nanoseconds(Clock::now() - start);
        kernel_ns_.fetch_add(spent.count(), std::memory_order_relaxed);
      },
      name);
}

TokenRows Model::tokens(KernelView& view, std::size_t rows) const {
  return {view.as<const std::uint8_t>(tokens_.address(), ModelShape::token_bytes(rows)), rows,
          ModelShape::kContext};
}

std::size_t Model::parameter_elems() const {
  return std::accumulate(
      parameters_.begin(), parameters_.end(), std::size_t{0},
      [](std::size_t sum, const Parameter& parameter) { return sum + parameter.elems; });
}

std::size_t Model::weight_bytes() const {
  return parameter_elems() * sizeof(Half);
}
std::size_t Model::gradient_bytes() const {
  return parameter_elems() * sizeof(Half);
}

std::size_t Model::activation_bytes() const {
  std::size_t bytes = tokens_.bytes() + loss_.bytes();
  for (const DeviceBuffer& activation : activations_) bytes += activation.bytes();
  return bytes;
}

}  // namespace text
