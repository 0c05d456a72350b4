// SPDX-License-Identifier: Apache-2.0
/// The model in device memory: its parameters, gradients and activations, and what queues its
/// kernels. This is the part of a trainer that talks to the engine.
///
/// A micro-batch is set_tokens(), forward(), loss() and backward(), all on one stream; then either
/// the next micro-batch or the engine's step(). Only one stream at a time may run a model's
/// kernels.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../common/device_buffer.hpp"
#include "ops.hpp"
#include "outboard/outboard.hpp"
#include "shape.hpp"

namespace gpt {

struct ModelOptions {
  /// Keep only each block's input and compute the rest of the block again in backward.
  bool checkpointing = true;
  GradBuffers grad_buffers = GradBuffers::ring;
  std::size_t threads = 1;  ///< that share a kernel's work; never changes a bit
  /// What a kernel is charged in virtual time; 0: kernels take what they take.
  double virtual_flops_per_s = 0.0;
};

/// The engine's groups: weight matrices decay, biases and LayerNorm parameters do not.
struct Groups {
  outboard::GroupId decay, no_decay;
};

/// One parameter as the engine sees it. Its gradient lives in `gradient`, which in a ring other
/// blocks' parameters use as well.
struct Parameter {
  std::string name;
  std::size_t elems = 0;
  double deviation = 0.0;  ///< of its initial values, normal around `mean`
  double mean = 0.0;
  bool decays = false;
  example::DeviceBuffer weight;
  void* gradient = nullptr;
  std::size_t slot = 0;  ///< index of the gradient buffer
  outboard::ParameterId id{};
};

class Model {
 public:
  /// @throws outboard::Error{invalid_config} for a bad shape, Error{out_of_memory} from the device,
  /// naming asked, used and limit.
  Model(outboard::sim::Gpu gpu, const GptShape& shape, const ModelOptions& options = {});
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// FP32 starting weights, one vector for each parameter: normal with deviation 0.02, the
  /// projections back into the residual stream smaller by sqrt(2 * layers), biases 0, LayerNorm
  /// gains 1.
  [[nodiscard]] std::vector<std::vector<float>> initial_weights(std::uint64_t seed) const;
  /// Registers the parameters in the order in which the forward pass uses them. `initial` must live
  /// until the engine's commit().
  void add_to(outboard::Engine& engine, const Groups& groups,
              const std::vector<std::vector<float>>& initial);

  /// Queues the copy of rows x (context + 1) tokens, each below `vocab` (not checked here). The
  /// host memory must stay valid until it has run.
  void set_tokens(std::span<const Token> tokens, outboard::NativeStream stream);
  /// Queues the forward pass of the first `rows` rows. Each layer first makes the stream wait for
  /// the refresh of its own parameters, so updates of later layers go on meanwhile.
  void forward(outboard::Engine& engine, std::size_t rows, outboard::NativeStream stream);
  /// Queues the cross entropy of those rows in nats, summed over rows x context positions, and its
  /// copy to `loss`, which must stay valid. `loss_scale` above 0 also starts the backward pass of
  /// the mean with that factor; it waits for the embedding's gradient buffer, hence the engine.
  void loss(outboard::Engine& engine, std::size_t rows, double loss_scale, double* loss,
            outboard::NativeStream stream);
  /// Queues the backward pass after loss() with a scale. Every parameter's gradient goes to the
  /// engine once, as soon as it is queued; the tied embedding's comes last. A buffer is overwritten
  /// only after the engine has taken what it held, so a ring needs gradients that leave during
  /// backward: with state resident on the device, use GradBuffers::full and one micro-batch.
  void backward(outboard::Engine& engine, std::size_t rows, outboard::NativeStream stream);
  /// After forward(): queues the FP32 logits of one position and their copy to `out` (vocab).
  /// A position sees only itself and earlier ones: what follows it in the row does not matter.
  void copy_logits(std::size_t row, std::size_t position, std::span<float> out,
                   outboard::NativeStream stream);

  [[nodiscard]] const GptShape& shape() const noexcept { return shape_; }
  [[nodiscard]] const ModelOptions& options() const noexcept { return options_; }
  [[nodiscard]] const std::vector<Parameter>& parameters() const noexcept { return parameters_; }
  /// FP32 tiles of the kernels, all threads together; not device memory.
  [[nodiscard]] std::size_t scratch_bytes() const;
  /// Time spent inside kernels so far.
  [[nodiscard]] double kernel_ms() const { return static_cast<double>(kernel_ns_.load()) * 1e-6; }
};

}  // namespace gpt
