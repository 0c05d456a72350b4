// SPDX-License-Identifier: Apache-2.0
/// The operators on a GPU: products by cuBLASLt, everything else by kernels of our own. All spans
/// are device memory; calls queue on the machine's stream and return.
#pragma once

#include "cuda_machine.hpp"
#include "products.hpp"

namespace gpt::cuda {

class CudaOps final : public Ops {
 public:
  /// `shape` bounds what the calls may ask for. `machine` outlives it.
  CudaOps(CudaMachine& machine, const GptShape& shape);

  void embed_forward(const EmbedForward& k) override;
  void embed_backward(const EmbedBackward& k) override;
  void layernorm_forward(const LayerNormForward& k) override;
  void layernorm_backward(const LayerNormBackward& k) override;
  void linear_forward(const LinearForward& k) override;
  void linear_backward_weight(const LinearBackwardWeight& k) override;
  void linear_backward_input(const LinearBackwardInput& k) override;
  void attention_forward(const AttentionForward& k) override;
  void attention_backward(const AttentionBackward& k) override;
  void gelu_forward(const GeluForward& k) override;
  void gelu_backward(const GeluBackward& k) override;
  /// Blocks.
  [[nodiscard]] double loss_forward(const LossForward& k) override;
  void loss_into(const LossForward& k, std::span<double> loss) override;
  void loss_backward_table(const LossBackwardTable& k) override;
  void logits(const Logits& k) override;

  [[nodiscard]] std::size_t scratch_bytes() const override { return scratch_bytes_; }
  [[nodiscard]] std::size_t thread_scratch_bytes() const override { return scratch_bytes_; }

 private:
  class Memory {
   public:
    Memory(CudaMachine& machine, std::size_t bytes)
        : machine_(machine), address_(machine.allocate(bytes)) {}
    ~Memory() { machine_.release(address_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    template <class T>
    [[nodiscard]] T* as() const {
      return static_cast<T*>(address_);
    }

   private:
    CudaMachine& machine_;
    void* address_;
  };
  /// Bytes for each purpose.
  struct Sizes {
    explicit Sizes(const GptShape& shape);
    std::size_t chunk_rows, floats, losses, logits, dlogits, table;
    [[nodiscard]] std::size_t total() const {
      return floats + losses + logits + dlogits + table + Products::kWorkspaceBytes;
    }
  };
  void column_sums(std::span<const Half> dy, std::size_t rows, std::span<Half> db);
  /// Calls use(first, count) for each part of the positions whose logits are made at once.
  template <class Use>
  void for_chunks(const Head& head, const Use& use);
  [[nodiscard]] Grid rows_grid(std::size_t rows) const;
  [[nodiscard]] Grid elements_grid(std::size_t elems) const;
  [[nodiscard]] Grid attention_grid(const AttentionShape& shape, std::size_t floats) const;

  CudaMachine& machine_;
  Sizes sizes_;
  std::size_t scratch_bytes_;
  Memory workspace_, floats_, losses_, logits_, dlogits_, table_;
  Products products_;
};

}  // namespace gpt::cuda
