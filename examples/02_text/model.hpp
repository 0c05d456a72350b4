// SPDX-License-Identifier: Apache-2.0
/// The model in device memory: its parameters, gradients and activations, and what queues its
/// kernels. This is the part of a trainer that talks to the engine.
///
/// The last 16 bytes -> their embeddings side by side -> two hidden layers with max(0, .) ->
/// softmax over the 256 bytes that may come next.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../common/device_buffer.hpp"
#include "gemm.hpp"
#include "layers.hpp"
#include "outboard/outboard.hpp"

namespace text {

using example::DeviceBuffer;

struct ModelShape {
  static constexpr std::size_t kContext = 16;
  std::size_t embed = 32;
  std::size_t width = 1024;
  std::size_t batch = 256;  ///< most rows of one pass

  [[nodiscard]] static std::size_t token_bytes(std::size_t rows) { return rows * (kContext + 1); }
  // What a Model of this shape will have, without making one.
  /// Elements of each parameter, in the order in which the model has them.
  [[nodiscard]] std::vector<std::size_t> parameter_sizes() const;
  [[nodiscard]] std::size_t parameter_elems() const;
  [[nodiscard]] std::size_t activation_bytes() const;
};

/// One parameter as the engine sees it: a 16-bit weight and a 16-bit gradient on the device.
struct Parameter {
  std::string name;
  std::size_t elems = 0;
  double init_bound = 0.0;  ///< initial values are uniform in [-bound, bound]
  DeviceBuffer weight, gradient;
  outboard::ParameterId id;
};

class Model {
 public:
  /// `virtual_flops_per_s`: what a kernel is charged in virtual time; 0: kernels take what they
  /// take.
  /// @throws outboard::Error{out_of_memory} from the device, naming asked, used and limit.
  Model(outboard::sim::Gpu gpu, const ModelShape& shape, double virtual_flops_per_s = 0.0);

  /// FP32 starting weights, one vector for each parameter.
  [[nodiscard]] std::vector<std::vector<float>> initial_weights(std::uint64_t seed) const;
  /// Registers the parameters in the order in which the forward pass uses them. `initial` must live
  /// until the engine's commit().
  void add_to(outboard::Engine& engine, outboard::GroupId group,
              const std::vector<std::vector<float>>& initial);

  /// Queues the copy of `rows` token rows. The host memory must stay valid until it has run.
  void set_tokens(std::span<const std::uint8_t> tokens, outboard::NativeStream stream);
  /// Queues the forward pass of the first `rows` rows. Each layer first makes the stream wait for
  /// the refresh of its own parameters, so updates of later layers go on meanwhile.
  void forward(outboard::Engine& engine, std::size_t rows, outboard::NativeStream stream);
  /// Queues the loss of those rows, summed, and its copy to `loss`, which must stay valid.
  /// `loss_scale` above 0 also starts the backward pass of the mean loss with it.
  void loss(std::size_t rows, double loss_scale, double* loss, outboard::NativeStream stream);
  /// Queues the backward pass and hands each gradient to the engine as soon as it is queued.
  void backward(outboard::Engine& engine, std::size_t rows, outboard::NativeStream stream);
  /// Queues the copy of the first row's logits to the host.
  void copy_logits(std::span<Half> out, outboard::NativeStream stream);

  [[nodiscard]] std::size_t parameter_elems() const;
  [[nodiscard]] std::size_t weight_bytes() const;
  [[nodiscard]] std::size_t gradient_bytes() const;
  [[nodiscard]] std::size_t activation_bytes() const;
  [[nodiscard]] const Scratch& scratch() const noexcept { return scratch_; }
  /// Time spent inside kernels so far.
  [[nodiscard]] double kernel_ms() const { return static_cast<double>(kernel_ns_.load()) * 1e-6; }

 private:
  struct Linear {
    std::size_t w, b;      // indices of parameters_
    std::size_t in, out;   // widths
    std::size_t x, y;      // indices of activations_
    bool relu;             // of the output
    bool input_is_active;  // the input came out of a max(0, .)
  };
  std::size_t add_parameter(const std::string& name, std::size_t elems, double init_bound);
  void add_linear(const std::string& name, std::size_t out, bool relu);
  void launch(outboard::NativeStream stream, double flops, outboard::sim::Kernel kernel,
              const char* name);
  void queue_forward(const Linear& layer, std::size_t rows, outboard::NativeStream stream);
  void queue_backward_weight(const Linear& layer, std::size_t rows, outboard::NativeStream stream);
  void queue_backward_input(const Linear& layer, std::size_t rows, outboard::NativeStream stream);
  void queue_embed_backward(std::size_t rows, outboard::NativeStream stream);
  void ready(outboard::Engine& engine, std::size_t parameter, outboard::NativeStream stream);
  [[nodiscard]] TokenRows tokens(outboard::sim::KernelView& view, std::size_t rows) const;

  outboard::sim::Gpu gpu_;
  ModelShape shape_;
  double virtual_flops_per_s_;
  std::vector<Parameter> parameters_;
  std::vector<Linear> layers_;
  std::vector<std::size_t> widths_;        // of each activation
  std::vector<DeviceBuffer> activations_;  // the embedded context, the hidden layers, the logits
  DeviceBuffer tokens_, loss_;
  Scratch scratch_;
  std::atomic<std::int64_t> kernel_ns_ = 0;
};

}  // namespace text
