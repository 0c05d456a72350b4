// SPDX-License-Identifier: Apache-2.0
/// A small deterministic trainer on a software GPU, for tests of the engine.
///
/// The forward of a parameter waits for it and adds up its weights; the backward makes a gradient
/// out of (step, parameter, element) and the weight on the device. So a stale or half-refreshed
/// weight changes the loss of that step and the state after it. After its buffers are made, a step
/// of the trainer itself allocates nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "outboard/outboard.hpp"
#include "support/device_memory.hpp"

namespace outboard::testing {

/// One gradient element: what a gradient function sees.
struct GradientPoint {
  std::uint64_t step = 0;  ///< from 0
  std::uint32_t parameter = 0;
  std::uint64_t element = 0;
  float weight = 0.0F;  ///< on the device when the backward runs
};

/// Well-mixed bits of a point (splitmix64's finaliser over a weighted sum).
inline std::uint64_t mix_bits(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15u + b * 0xC2B2AE3D27D4EB4Fu + c * 0x165667B19E3779F9u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
/// A multiple of 1/128 in [-1, 1): exact in FP16.
inline float mixed_unit(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return static_cast<float>(static_cast<int>(mix_bits(a, b, c) >> 56) - 128) / 128.0F;
}
/// The gradient unless a test gives another: pulls the weight to zero, with noise.
inline float default_gradient(const GradientPoint& at) {
  return 0.5F * at.weight + mixed_unit(at.step, at.parameter, at.element);
}

struct TinyParameter {
  std::string name;
  std::uint64_t elems = 1;
  std::uint32_t group = 0;       ///< index into TinyOptions::groups
  std::vector<float> initial{};  ///< empty: a pattern of (parameter, element)
  bool give_master = false;      ///< hand `initial` to the engine as FP32 masters too
  DType dtype = DType::f16;
};

/// A group of any rule.
struct TinyRule {
  Rule rule;
  GroupOptions options{};
};

/// Writes `bits` over one gradient element.
struct InjectedHalf {
  std::uint64_t step = 0;
  std::uint32_t parameter = 0;
  std::uint64_t element = 0;
  std::uint32_t bits = 0x7C00;  ///< of the parameter's dtype; +Inf in f16
};

struct TinyOptions {
  sim::Options device;
  /// What the engine drives the device through. Empty: the software GPU's own interface.
  std::function<Device()> engine_device{};
  Config config;
  std::vector<AdamW> groups = {AdamW{}};
  std::vector<TinyRule> rules{};  ///< not empty: the groups, in place of `groups`
  std::vector<TinyParameter> parameters;
  /// Before loss scale; times accumulation is the gradient function's own business.
  std::function<float(const GradientPoint&)> gradient = default_gradient;
  /// Whether a parameter gets a gradient in a step. Empty: always.
  std::function<bool(std::uint64_t step, std::uint32_t parameter)> has_gradient;
  std::vector<InjectedHalf> injected;
  [[nodiscard]] std::size_t group_count() const {
    return rules.empty() ? groups.size() : rules.size();
  }
  sim::Duration forward{0};   ///< of one parameter
  sim::Duration backward{0};  ///< of one parameter
  /// Override the two above, one entry per parameter.
  std::vector<sim::Duration> forward_each, backward_each;
  std::uint32_t passes = 1;    ///< forwards and backwards of a step: Accumulate::host
  bool second_stream = false;  ///< backward on its own stream
  bool wait = true;            ///< call Engine::wait before each forward
  /// Gradient buffers shared by all parameters in turn (host placement only); 0: one for each.
  std::uint32_t gradient_ring = 0;
  bool digest = true;  ///< read the state digest after each step (implies synchronize())
  std::uint64_t max_steps = 256;
};

struct TinyStep {
  double loss = 0.0;  ///< NaN unless TinyOptions::digest: see TinyTrainer::loss
  StepResult result;
  std::uint64_t digest = 0;
};

class TinyTrainer {
 public:
  /// Makes a device, streams, weights and gradient buffers. No engine yet: see start().
  explicit TinyTrainer(const TinyOptions& options)
      : TinyTrainer(sim::Gpu(options.device), options) {}
  /// On a device that exists; options.device is not read.
  TinyTrainer(const sim::Gpu& gpu, TinyOptions options) : options_(std::move(options)), gpu_(gpu) {
    reader_ = gpu_.create_stream("forward");
    writer_ = options_.second_stream ? gpu_.create_stream("backward") : reader_;
    forward_done_ = gpu_.create_event();
    backward_done_ = gpu_.create_event();
    const std::size_t count = options_.parameters.size();
    for (std::size_t i = 0; i < count; ++i) make_weight(static_cast<std::uint32_t>(i));
    make_gradients();
    losses_.assign(count * options_.max_steps, 0.0);
    scales_.assign(options_.max_steps, 1.0);
    given_.assign(count, false);
  }
  /// Destroys the engine, then waits for the trainer's own work.
  ~TinyTrainer() {
    stop();
    gpu_.destroy_stream(reader_);
    if (writer_ != reader_) gpu_.destroy_stream(writer_);
  }
  TinyTrainer(const TinyTrainer&) = delete;
  TinyTrainer& operator=(const TinyTrainer&) = delete;

  /// Makes the engine, adds groups and parameters, commits.
  void start() {
    prepare();
    engine().commit();
  }
  /// All of start() but the commit.
  void prepare() {
    make_engine();
    add_groups(options_.group_count());
    add_parameters(options_.parameters.size());
    in_use_ = ids_.size();
  }
  /// As start(), with the first parameters alone: the others are read by the forward and nothing
  /// else, until they are added.
  void start_with(std::size_t parameters) {
    make_engine();
    add_parameters(parameters);
    engine().commit();
    in_use_ = ids_.size();
  }
  /// Adds parameters until there are so many, and the groups that they need. No commit.
  void add_parameters(std::size_t parameters) {
    while (ids_.size() < parameters) {
      const auto i = static_cast<std::uint32_t>(ids_.size());
      add_groups(options_.parameters[i].group + std::size_t{1});
      ids_.push_back(engine().add_parameter(spec(i)));
    }
  }
  /// Commits those added since: from now on steps involve them.
  void commit() {
    engine().commit();
    in_use_ = ids_.size();
  }
  /// Destroys the engine.
  void stop() noexcept { engine_.reset(); }

  /// One training step.
  TinyStep step() {
    for (std::uint32_t pass = 0; pass < options_.passes; ++pass) {
      forward();
      backward();
    }
    return finish();
  }
  /// The next step is this one: the place in its data of a trainer that resumes.
  void continue_at(std::uint64_t step) { steps_ = step; }
  /// The parts of step(), for tests that do something between them.
  void forward() {
    const std::uint64_t step = steps_;
    if (step >= options_.max_steps) throw std::logic_error("raise TinyOptions::max_steps");
    if (writer_ != reader_) gpu_.wait_event(reader_, backward_done_);
    for (std::uint32_t i = 0; i < count(); ++i) {
      if (options_.wait && i < in_use_) engine().wait(ids_[i], reader_);
      launch_forward(i, step);
    }
    if (writer_ == reader_) return;
    gpu_.record(forward_done_, reader_);
    gpu_.wait_event(writer_, forward_done_);
  }
  void backward() {
    for (auto i = static_cast<std::uint32_t>(in_use_); i-- > 0;) {
      if (options_.has_gradient && !options_.has_gradient(steps_, i)) continue;
      give_gradient(i);
    }
    if (writer_ != reader_) gpu_.record(backward_done_, writer_);
  }
  /// Backward of one parameter and gradient_ready().
  void give_gradient(std::uint32_t i) {
    if (scale_known_for_ != steps_) scales_[steps_] = engine().loss_scale();
    scale_known_for_ = steps_;
    void* const buffer = claim_buffer(i);
    buffers_[steps_ * count() + i] = buffer;
    launch_backward(i, steps_);
    engine().gradient_ready(ids_[i], buffer, writer_);
    given_[i] = true;
  }
  TinyStep finish() {
    TinyStep out;
    out.loss = std::numeric_limits<double>::quiet_NaN();
    out.result = engine().step();
    const std::uint64_t step = steps_++;
    if (options_.digest) {
      out.digest = engine().state_digest();
      gpu_.synchronize(reader_);
      out.loss = sum_losses(step);
    }
    return out;
  }
  /// Sum of all weights that the forward of `step` read, in a fixed order. Waits for the device.
  double loss(std::uint64_t step) {
    gpu_.synchronize();
    return sum_losses(step);
  }
  std::vector<TinyStep> run(std::uint64_t steps) {
    std::vector<TinyStep> out;
    for (std::uint64_t i = 0; i < steps; ++i) out.push_back(step());
    return out;
  }

  /// The weight's bits after its last refresh, in words of 16 bits (two for each f32 element).
  std::vector<std::uint16_t> weight_bits(std::uint32_t i) {
    engine().wait(ids_.at(i), reader_);
    return download<std::uint16_t>(gpu_, weight(i), weight_bytes(i) / 2, reader_);
  }
  struct State {
    std::vector<float> p, m, v;  ///< the master, the rule's first and second stream
    std::uint64_t t = 0;
    std::vector<std::uint16_t> weight;
    std::vector<float> ema{};
    bool operator==(const State&) const = default;
  };
  /// Everything about one parameter, the device's weight included.
  State state(std::uint32_t i) {
    State out;
    std::vector<float>* next = &out.p;
    for (const std::string_view stream : engine().state_streams(ids_.at(i))) {
      std::vector<float>& values = stream == "ema" ? out.ema : *next;
      values.resize(elems(i));
      engine().read_state(ids_[i], stream, values);
      next = next == &out.p ? &out.m : &out.v;
    }
    out.t = engine().step_count(ids_[i]);
    out.weight = weight_bits(i);
    return out;
  }

  [[nodiscard]] sim::Gpu& gpu() { return gpu_; }
  [[nodiscard]] Engine& engine() { return engine_.value(); }
  [[nodiscard]] std::size_t in_use() const { return in_use_; }
  [[nodiscard]] bool started() const { return engine_.has_value(); }
  [[nodiscard]] ParameterId id(std::uint32_t i) const { return ids_.at(i); }
  [[nodiscard]] GroupId group(std::uint32_t i) const { return groups_.at(i); }
  [[nodiscard]] void* weight(std::uint32_t i) const { return weights_.at(i).get(); }
  [[nodiscard]] void* gradient(std::uint32_t i) const { return gradients_.at(i).get(); }
  [[nodiscard]] NativeStream reader() const { return reader_; }
  [[nodiscard]] NativeStream writer() const { return writer_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] TinyOptions& options() { return options_; }
  /// Initial values of a parameter, as floats (before their rounding to its dtype).
  [[nodiscard]] std::vector<float> initial(std::uint32_t i) const {
    const TinyParameter& parameter = options_.parameters.at(i);
    if (!parameter.initial.empty()) return parameter.initial;
    std::vector<float> values(static_cast<std::size_t>(parameter.elems));
    for (std::size_t e = 0; e < values.size(); ++e) values[e] = mixed_unit(~std::uint64_t{0}, i, e);
    return values;
  }
  /// How add_parameter() is called.
  [[nodiscard]] ParameterSpec spec(std::uint32_t i) const {
    const TinyParameter& parameter = options_.parameters.at(i);
    ParameterSpec out;
    out.name = parameter.name.empty() ? "p" + std::to_string(i) : parameter.name;
    out.dtype = parameter.dtype;
    out.elems = parameter.elems;
    out.data = weight(i);
    out.group = groups_.at(parameter.group);
    if (parameter.give_master) out.master = parameter.initial;
    return out;
  }

 private:
  static std::uint64_t pack(std::uint64_t step, std::uint32_t i) { return step << 32 | i; }

  void make_engine() {
    engine_.emplace(options_.engine_device ? options_.engine_device() : gpu_.device(),
                    options_.config);
    groups_.clear();
    ids_.clear();
    in_use_ = 0;
    std::fill(given_.begin(), given_.end(), false);
  }
  void add_groups(std::size_t groups) {
    while (groups_.size() < groups) {
      const std::size_t i = groups_.size();
      if (options_.rules.empty()) {
        groups_.push_back(engine().add_group(options_.groups[i]));
      } else {
        groups_.push_back(engine().add_group(options_.rules[i].rule, options_.rules[i].options));
      }
    }
  }

  void make_weight(std::uint32_t i) {
    const std::vector<float> values = initial(i);
    if (values.size() != elems(i)) throw std::logic_error("TinyParameter::initial: another size");
    weights_.emplace_back(gpu_, weight_bytes(i));
    const auto elements = to_elements(values, dtype(i));
    upload<std::byte>(gpu_, weight(i), elements, reader_);
  }
  void make_gradients() {
    std::size_t largest = 0;
    for (std::uint32_t i = 0; i < count(); ++i) largest = std::max(largest, weight_bytes(i));
    if (options_.gradient_ring == 0) {
      for (std::uint32_t i = 0; i < count(); ++i) gradients_.emplace_back(gpu_, weight_bytes(i));
    }
    for (std::uint32_t i = 0; i < options_.gradient_ring; ++i) {
      gradients_.emplace_back(gpu_, largest);
      ring_owner_.push_back(std::nullopt);
    }
    buffers_.assign(options_.parameters.size() * options_.max_steps, nullptr);
  }
  /// A gradient buffer that the work queued on the writer from now on may overwrite.
  void* claim_buffer(std::uint32_t i) {
    if (options_.gradient_ring == 0) {
      if (given_[i]) engine().wait_gradient_taken(ids_[i], writer_);
      return gradients_[i].get();
    }
    std::optional<std::uint32_t>& owner = ring_owner_[ring_next_];
    if (owner && given_[*owner]) engine().wait_gradient_taken(ids_[*owner], writer_);
    owner = i;
    void* buffer = gradients_[ring_next_].get();
    ring_next_ = (ring_next_ + 1) % options_.gradient_ring;
    return buffer;
  }
  void launch_forward(std::uint32_t i, std::uint64_t step) {
    const auto& each = options_.forward_each;
    // Two words: std::function keeps them without allocating.
    const auto kernel = [this, at = pack(step, i)](sim::KernelView& view) { read(view, at); };
    gpu_.launch(reader_, each.empty() ? options_.forward : each.at(i), kernel, "forward");
  }
  void launch_backward(std::uint32_t i, std::uint64_t step) {
    const auto& each = options_.backward_each;
    const auto kernel = [this, at = pack(step, i)](sim::KernelView& view) { write(view, at); };
    gpu_.launch(writer_, each.empty() ? options_.backward : each.at(i), kernel, "backward");
  }
  void read(sim::KernelView& view, std::uint64_t at) {
    const auto i = static_cast<std::uint32_t>(at);
    const std::uint64_t step = at >> 32;
    double sum = 0.0;
    if (elems(i) > 0) {
      const auto weights = view.as<const std::byte>(weight(i), weight_bytes(i));
      for (std::size_t e = 0; e < elems(i); ++e) {
        sum += static_cast<double>(float_of_bits(load_bits(weights, e, dtype(i)), dtype(i)));
      }
    }
    losses_[step * count() + i] = sum;
  }
  void write(sim::KernelView& view, std::uint64_t at) {
    const auto i = static_cast<std::uint32_t>(at);
    const std::uint64_t step = at >> 32;
    if (elems(i) == 0) return;
    const auto weights = view.as<const std::byte>(weight(i), weight_bytes(i));
    const auto gradient = view.as<std::byte>(buffers_[step * count() + i], weight_bytes(i));
    const auto scale = static_cast<float>(scales_[step]);
    for (std::size_t e = 0; e < elems(i); ++e) {
      const float weight = float_of_bits(load_bits(weights, e, dtype(i)), dtype(i));
      const float value = options_.gradient({step, i, e, weight}) * scale;
      store_bits(gradient, e, bits_of_float(value, dtype(i)), dtype(i));
    }
    for (const InjectedHalf& bad : options_.injected) {
      if (bad.step != step || bad.parameter != i) continue;
      store_bits(gradient, bad.element, bad.bits, dtype(i));
    }
  }
  // Kernels of an engine before may still run while start() makes the next one's ids.
  [[nodiscard]] std::size_t count() const { return options_.parameters.size(); }
  [[nodiscard]] std::size_t elems(std::uint32_t i) const {
    return static_cast<std::size_t>(options_.parameters[i].elems);
  }
  [[nodiscard]] DType dtype(std::uint32_t i) const { return options_.parameters[i].dtype; }
  [[nodiscard]] std::size_t weight_bytes(std::uint32_t i) const {
    return elems(i) * dtype_bytes(dtype(i));
  }
  [[nodiscard]] double sum_losses(std::uint64_t step) const {
    double sum = 0.0;
    for (std::size_t i = 0; i < count(); ++i) sum += losses_[step * count() + i];
    return sum;
  }

  TinyOptions options_;
  sim::Gpu gpu_;
  NativeStream reader_, writer_;
  sim::EventId forward_done_, backward_done_;
  std::vector<DeviceBuffer> weights_, gradients_;
  std::vector<void*> buffers_;  // [step][parameter]: where the gradient is written
  std::vector<std::optional<std::uint32_t>> ring_owner_;
  std::uint32_t ring_next_ = 0;
  std::vector<GroupId> groups_;
  std::vector<ParameterId> ids_;
  std::size_t in_use_ = 0;  // parameters that steps involve
  std::vector<bool> given_;
  std::vector<double> losses_;  // [step][parameter]
  std::vector<double> scales_;
  std::uint64_t steps_ = 0;
  std::uint64_t scale_known_for_ = UINT64_MAX;
  std::optional<Engine> engine_;
};

/// A device in virtual time.
inline sim::Options virtual_device(std::uint64_t seed = 1) {
  sim::Options options;
  options.mode = sim::Mode::virtual_time;
  options.seed = seed;
  return options;
}

}  // namespace outboard::testing
