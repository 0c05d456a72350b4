// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <chrono>
#include <cmath>
#include <numbers>
#include <utility>

#include "../common/random.hpp"

namespace gpt {

using outboard::NativeStream;

namespace {

/// Of the weights at the start: 0.02 at a width of 1600. The same for narrow models would leave
/// attention blind for their first few hundred steps.
float deviation_of(const GptShape& shape) {
  return 0.8f / std::sqrt(static_cast<float>(shape.width));
}

GptShape validated(const GptShape& shape) {
  shape.validate();
  return shape;
}

/// A buffer of a ring holds the gradients of several blocks in turn, and one of its own is
/// overwritten by the next micro-batch: neither can add up.
ModelOptions validated(const ModelOptions& options) {
  const MicroBatches& batches = options.micro_batches;
  if (batches.count <= 1 || batches.accumulate == outboard::Accumulate::host) return options;
  const bool ring = options.grad_buffers == GradBuffers::ring;
  throw outboard::Error(
      outboard::ErrorCode::invalid_config,
      std::string(ring ? "GradBuffers::ring" : "GradBuffers::full") +
          " with Accumulate::trainer and " + std::to_string(batches.count) +
          " micro-batches: gradient buffers are overwritten by " +
          (ring ? "the gradients of other blocks" : "the next micro-batch") +
          ", so the trainer cannot add them up; use Accumulate::host, or accumulation 1");
}

/// Two normal numbers at a time (Box and Muller, 1958).
class Normal {
 public:
  explicit Normal(std::uint64_t seed) : random_(seed) {}
  double next() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log(1.0 - random_.unit()));
    const double angle = 2.0 * std::numbers::pi * random_.unit();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

 private:
  example::Random random_;
  double spare_ = 0.0;
  bool has_spare_ = false;
};

}  // namespace

Model::Model(std::shared_ptr<Machine> machine, const GptShape& shape, const ModelOptions& options)
    : machine_(std::move(machine)), shape_(validated(shape)), options_(validated(options)) {
  const float deviation = deviation_of(shape_);
  add_parameter("wte", shape_.vocab * shape_.width, {.deviation = deviation}, true);
  add_parameter("wpe", shape_.context * shape_.width, {.deviation = deviation}, true);
  for (std::size_t block = 0; block < shape_.layers; ++block) add_block(block);
  add_parameter("ln_f.gain", shape_.width, {.mean = 1.0f}, false);
  add_parameter("ln_f.bias", shape_.width, {}, false);
  allocate_gradients();
  allocate_activations();
  ops_ = machine_->make_ops(shape_, options_.threads);
}

Model::~Model() = default;

void Model::add_parameter(const std::string& name, std::size_t elems, const Init& init,
                          bool decays) {
  parameters_.push_back({.name = name,
                         .elems = elems,
                         .mean = init.mean,
                         .deviation = init.deviation,
                         .decays = decays,
                         .weight = halves(elems)});
}

void Model::add_block(std::size_t block) {
  const std::size_t c = shape_.width;
  const std::string name = "block" + std::to_string(block) + ".";
  // Each block adds two projections to the stream: together they keep its variance.
  const float inner = deviation_of(shape_);
  const float projection = inner / std::sqrt(2.0f * static_cast<float>(shape_.layers));
  const auto normal = [&](const char* which) {
    add_parameter(name + which + ".gain", c, {.mean = 1.0f}, false);
    add_parameter(name + which + ".bias", c, {}, false);
  };
  const auto linear = [&](const char* which, std::size_t in, std::size_t out, float deviation) {
    add_parameter(name + which + ".weight", in * out, {.deviation = deviation}, true);
    add_parameter(name + which + ".bias", out, {}, false);
  };
  normal("ln_1");
  linear("attention.qkv", c, 3 * c, inner);
  linear("attention.project", c, c, projection);
  normal("ln_2");
  linear("feed_forward.up", c, 4 * c, inner);
  linear("feed_forward.down", 4 * c, c, projection);
}

void Model::allocate_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    const std::size_t ring = index(2, kGain1);  // the first parameter that can share
    const bool shares = options_.grad_buffers == GradBuffers::ring && i >= ring && i < last_gain();
    if (shares) {
      parameter.slot = parameters_[i - 2 * kBlockParameters].slot;
    } else {
      parameter.slot = slots_.size();
      slots_.push_back({.buffer = halves(parameter.elems)});
    }
  }
}

void Model::allocate_activations() {
  const std::size_t positions = shape_.positions(shape_.batch);
  for (std::size_t i = 0; i <= shape_.layers; ++i) streams_.push_back(activation(1));
  for (std::size_t i = 0; i < (options_.checkpointing ? 1 : shape_.layers); ++i) {
    inside_.push_back({.normal1 = activation(1),
                       .qkv = activation(3),
                       .attended = activation(1),
                       .middle = activation(1),
                       .normal2 = activation(1),
                       .up = activation(4),
                       .active = activation(4)});
  }
  gradient_stream_ = activation(1);
  gradient_width_ = activation(1);
  gradient_wide_ = activation(4);
  tokens_ = DeviceBuffer(machine_, shape_.batch * shape_.row_tokens() * sizeof(Token));
  log_sum_ = DeviceBuffer(machine_, positions * sizeof(float));
  loss_ = DeviceBuffer(machine_, sizeof(double));
  logits_ = DeviceBuffer(machine_, shape_.vocab * sizeof(float));
}

DeviceBuffer Model::halves(std::size_t elems) {
  return {machine_, elems * sizeof(Half)};
}

DeviceBuffer Model::activation(std::size_t widths) {
  return halves(shape_.positions(shape_.batch) * widths * shape_.width);
}

std::vector<std::vector<float>> Model::initial_weights(std::uint64_t seed) const {
  Normal normal(seed);
  std::vector<std::vector<float>> initial;
  for (const Parameter& parameter : parameters_) {
    std::vector<float>& values = initial.emplace_back(parameter.elems, parameter.mean);
    if (parameter.deviation == 0.0f) continue;
    for (float& value : values) {
      value += static_cast<float>(static_cast<double>(parameter.deviation) * normal.next());
    }
  }
  return initial;
}

void Model::add_to(outboard::Engine& engine, const Groups& groups,
                   const std::vector<std::vector<float>>& initial) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    parameter.id = engine.add_parameter({.name = parameter.name,
                                         .dtype = outboard::DType::f16,
                                         .elems = parameter.elems,
                                         .data = parameter.weight.address(),
                                         .group = parameter.decays ? groups.decay : groups.no_decay,
                                         .master = initial[i]});
  }
}

void Model::launch(NativeStream stream, const KernelCost& cost, OperatorCall kernel) {
  using Clock = std::chrono::steady_clock;
  outboard::sim::Duration charged{0};
  if (options_.virtual_flops_per_s > 0.0) {
    charged = outboard::sim::Duration(
        std::llround(1e3 + cost.flops / options_.virtual_flops_per_s * 1e9));
  }
  machine_->launch(
      stream, charged,
      [this, kernel = std::move(kernel)](View& view) {
        const auto start = Clock::now();
        kernel(view);
        const auto spent = std::chrono::nanoseconds(Clock::now() - start);
        kernel_ns_.fetch_add(spent.count(), std::memory_order_relaxed);
      },
      cost.name);
}

std::span<const Half> Model::weight(View& view, std::size_t parameter) const {
  return view.as<const Half>(parameters_[parameter].weight.address(), parameters_[parameter].elems);
}

std::span<Half> Model::gradient(View& view, std::size_t parameter) const {
  return view.as<Half>(slots_[parameters_[parameter].slot].buffer.address(),
                       parameters_[parameter].elems);
}

TokenRows Model::tokens(View& view, std::size_t rows) const {
  return {view.as<const Token>(tokens_.address(), rows * shape_.row_tokens()), rows,
          shape_.context};
}

Head Model::head(View& view, std::size_t rows) const {
  return {.tokens = tokens(view, rows),
          .width = shape_.width,
          .vocab = shape_.vocab,
          .h = view.as<const Half>(gradient_wide_.address(), shape_.positions(rows) * shape_.width),
          .wte = weight(view, kWte)};
}

}  // namespace gpt
