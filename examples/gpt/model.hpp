// SPDX-License-Identifier: Apache-2.0
/// The model in device memory: its parameters, gradients and activations, and what queues its
/// kernels. This is the part of a trainer that talks to the engine.
///
/// A micro-batch is set_tokens(), forward(), loss() and backward(), all on one stream; then either
/// the next micro-batch or the engine's step(). Only one stream at a time may run a model's
/// kernels.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "machine.hpp"
#include "ops.hpp"
#include "outboard/outboard.hpp"
#include "shape.hpp"

namespace gpt {

/// How the gradients of a step's micro-batches are to be added up: as the engine is configured.
struct MicroBatches {
  std::uint32_t count = 1;
  outboard::Accumulate accumulate = outboard::Accumulate::host;
};

struct ModelOptions {
  /// Keep only each block's input and compute the rest of the block again in backward.
  bool checkpointing = true;
  GradBuffers grad_buffers = GradBuffers::ring;
  std::size_t threads = 1;  ///< that share a kernel's work; never changes a bit
  /// What a kernel is charged in virtual time; 0: kernels take what they take.
  double virtual_flops_per_s = 0.0;
  MicroBatches micro_batches{};
};

/// The engine's groups: weight matrices decay, biases and LayerNorm parameters do not.
struct Groups {
  outboard::GroupId decay, no_decay;
};

/// One parameter as the engine sees it. Its gradient has one buffer of its own, or in a ring shares
/// it with the same parameter of every other block.
struct Parameter {
  std::string name;
  std::size_t elems = 0;
  float mean = 0.0f, deviation = 0.0f;  ///< of the initial values, which are normal
  bool decays = false;
  DeviceBuffer weight;
  std::size_t slot = 0;  ///< of the gradient
  outboard::ParameterId id{};
};

class Model {
 public:
  /// @throws outboard::Error{invalid_config} for a bad shape, or for several micro-batches under
  /// Accumulate::trainer: the kernels write gradients and do not add to them. Error{out_of_memory}
  /// from the device, naming asked, used and limit.
  Model(std::shared_ptr<Machine> machine, const GptShape& shape, const ModelOptions& options = {});
  /// On the software GPU.
  Model(outboard::sim::Gpu gpu, const GptShape& shape, const ModelOptions& options = {})
      : Model(make_machine(std::move(gpu)), shape, options) {}
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// FP32 starting weights, one vector for each parameter: normal with deviation 0.8 / sqrt(width),
  /// the projections back into the residual stream smaller by sqrt(2 * layers), biases 0, LayerNorm
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
  /// backward. State resident on the device without Accumulate::host keeps them until step(): use
  /// GradBuffers::full there.
  void backward(outboard::Engine& engine, std::size_t rows, outboard::NativeStream stream);
  /// After forward(): queues the FP32 logits of one position and their copy to `out` (vocab).
  /// A position sees only itself and earlier ones: what follows it in the row does not matter.
  void copy_logits(std::size_t row, std::size_t position, std::span<float> out,
                   outboard::NativeStream stream);

  [[nodiscard]] const GptShape& shape() const noexcept { return shape_; }
  [[nodiscard]] const ModelOptions& options() const noexcept { return options_; }
  [[nodiscard]] const std::vector<Parameter>& parameters() const noexcept { return parameters_; }
  /// FP32 tiles of the kernels, all threads together; not device memory.
  [[nodiscard]] std::size_t scratch_bytes() const { return ops_->scratch_bytes(); }
  /// Those of one thread.
  [[nodiscard]] std::size_t thread_scratch_bytes() const { return ops_->thread_scratch_bytes(); }
  /// Time spent inside kernels so far, if the machine times_calls().
  [[nodiscard]] double kernel_ms() const { return static_cast<double>(kernel_ns_.load()) * 1e-6; }

 private:
  /// What a block computes between its input and its output.
  struct Inside {
    DeviceBuffer normal1, qkv, attended, middle, normal2, up, active;
  };
  /// One gradient buffer and the parameter whose gradient it holds or held.
  struct Slot {
    DeviceBuffer buffer;
    const Parameter* owner = nullptr;
  };
  /// Parameters of a block, in the order in which forward uses them.
  enum BlockParameter : std::size_t {
    kGain1,
    kBias1,
    kQkvWeight,
    kQkvBias,
    kProjectWeight,
    kProjectBias,
    kGain2,
    kBias2,
    kUpWeight,
    kUpBias,
    kDownWeight,
    kDownBias,
    kBlockParameters
  };

  struct Init {
    float mean = 0.0f, deviation = 0.0f;
  };
  void add_parameter(const std::string& name, std::size_t elems, const Init& init, bool decays);
  void add_block(std::size_t block);
  void allocate_gradients();
  void allocate_activations();
  [[nodiscard]] DeviceBuffer halves(std::size_t elems);
  [[nodiscard]] DeviceBuffer activation(std::size_t widths);

  [[nodiscard]] std::size_t index(std::size_t block, BlockParameter which) const {
    return 2 + block * kBlockParameters + which;
  }
  [[nodiscard]] std::size_t last_gain() const { return parameters_.size() - 2; }
  [[nodiscard]] std::size_t last_bias() const { return parameters_.size() - 1; }
  [[nodiscard]] const Inside& inside(std::size_t block) const {
    return inside_[options_.checkpointing ? 0 : block];
  }
  static constexpr std::size_t kWte = 0, kWpe = 1;

  /// A pass on one stream: what the queueing functions below share.
  struct Pass {
    outboard::Engine& engine;
    std::size_t rows;
    outboard::NativeStream stream;
  };
  void wait(const Pass& pass, std::size_t first, std::size_t count);
  /// Before kernels that overwrite these parameters' gradients are queued, and after.
  void claim(const Pass& pass, std::size_t first, std::size_t count);
  void hand_out(const Pass& pass, std::size_t first, std::size_t count);

  struct NormalCall {
    const DeviceBuffer& x;
    std::size_t gain;  // the bias is the next parameter
    const DeviceBuffer& y;
  };
  struct LinearCall {
    const DeviceBuffer& x;
    std::size_t weight;  // the bias is the next parameter
    std::size_t in, out;
    const DeviceBuffer& y;
    const DeviceBuffer* residual = nullptr;
  };
  void queue_embed(const Pass& pass);
  /// Without `output` only what is inside the block.
  void queue_block(const Pass& pass, std::size_t block, bool output);
  void queue_normal(const Pass& pass, const NormalCall& call);
  void queue_linear(const Pass& pass, const LinearCall& call);
  void queue_attention(const Pass& pass, const Inside& in);
  void queue_loss(const Pass& pass, double loss_scale);
  void queue_table_gradient(const Pass& pass);
  /// gradient_stream_ is the gradient of the block's output, then of its input.
  void queue_block_backward(const Pass& pass, std::size_t block);
  /// y's gradient is in gradient_width_; x's is added to gradient_stream_, or with `first` is it.
  void queue_normal_backward(const Pass& pass, const NormalCall& call, bool first);
  void queue_linear_backward(const Pass& pass, const LinearCall& call, const DeviceBuffer& dy,
                             const DeviceBuffer& dx);
  /// From gradient_width_ to gradient_wide_.
  void queue_attention_backward(const Pass& pass, const Inside& in);
  void queue_embed_backward(const Pass& pass);
  struct KernelCost {
    const char* name;
    double flops = 0.0;
  };
  void launch(outboard::NativeStream stream, const KernelCost& cost, OperatorCall kernel);

  [[nodiscard]] std::span<const Half> weight(View& view, std::size_t parameter) const;
  [[nodiscard]] std::span<Half> gradient(View& view, std::size_t parameter) const;
  /// `widths` times the width of every position.
  [[nodiscard]] std::span<Half> halves_of(View& view, const DeviceBuffer& buffer, std::size_t rows,
                                          std::size_t widths) const {
    return view.as<Half>(buffer.address(), shape_.positions(rows) * widths * shape_.width);
  }
  [[nodiscard]] AttentionShape attention_shape(std::size_t rows) const;
  [[nodiscard]] TokenRows tokens(View& view, std::size_t rows) const;
  [[nodiscard]] Head head(View& view, std::size_t rows) const;

  std::shared_ptr<Machine> machine_;
  GptShape shape_;
  ModelOptions options_;
  std::vector<Parameter> parameters_;
  std::vector<Slot> slots_;
  std::vector<DeviceBuffer> streams_;  // before each block, and after the last
  std::vector<Inside> inside_;         // of each block, or with checkpointing of one
  // Gradients at work: of the residual stream, of one width, of four. The last LayerNorm's output
  // is in gradient_wide_ until the loss has read it.
  DeviceBuffer gradient_stream_, gradient_width_, gradient_wide_;
  DeviceBuffer tokens_, log_sum_, loss_, logits_;
  float gradient_scale_ = 0.0f;  // of this micro-batch's loss
  std::unique_ptr<Ops> ops_;
  std::atomic<std::int64_t> kernel_ns_ = 0;
};

}  // namespace gpt
