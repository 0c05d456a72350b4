// SPDX-License-Identifier: Apache-2.0
// The operators on the GPU that the driver gives: a real one, or the stand-in's where libcuda.so.1
// is that.
#include <map>
#include <stdexcept>
#include <type_traits>

#include "gpt_ops_flavours.hpp"
#include "machine.hpp"

namespace gpt::test {
namespace {

/// Takes spans of the host's memory to the device for one call, and what it wrote back.
class CarriedOps final : public Ops {
 public:
  CarriedOps(std::shared_ptr<Machine> machine, const GptShape& shape)
      : machine_(std::move(machine)),
        stream_(machine_->create_stream("test")),
        ops_(machine_->make_ops(shape, 1)) {}

  void embed_forward(const EmbedForward& k) override {
    call([&] { ops_->embed_forward({on(k.tokens), k.width, on(k.wte), on(k.wpe), on(k.out)}); });
  }
  void embed_backward(const EmbedBackward& k) override {
    call([&] { ops_->embed_backward({on(k.tokens), k.width, on(k.dy), on(k.dwte), on(k.dwpe)}); });
  }
  void layernorm_forward(const LayerNormForward& k) override {
    call([&] { ops_->layernorm_forward({k.shape, on(k.x), on(k.gain), on(k.bias), on(k.y)}); });
  }
  void layernorm_backward(const LayerNormBackward& k) override {
    call([&] {
      ops_->layernorm_backward({k.shape, on(k.x), on(k.gain), on(k.dy), on(k.residual), on(k.dx),
                                on(k.dgain), on(k.dbias)});
    });
  }
  void linear_forward(const LinearForward& k) override {
    call([&] {
      ops_->linear_forward({k.shape, on(k.x), on(k.w), on(k.b), on(k.residual), on(k.y)});
    });
  }
  void linear_backward_weight(const LinearBackwardWeight& k) override {
    call([&] { ops_->linear_backward_weight({k.shape, on(k.x), on(k.dy), on(k.dw), on(k.db)}); });
  }
  void linear_backward_input(const LinearBackwardInput& k) override {
    call([&] { ops_->linear_backward_input({k.shape, on(k.dy), on(k.w), on(k.dx)}); });
  }
  void attention_forward(const AttentionForward& k) override {
    call([&] { ops_->attention_forward({k.shape, on(k.qkv), on(k.out)}); });
  }
  void attention_backward(const AttentionBackward& k) override {
    call([&] { ops_->attention_backward({k.shape, on(k.qkv), on(k.dout), on(k.dqkv)}); });
  }
  void gelu_forward(const GeluForward& k) override {
    call([&] { ops_->gelu_forward({on(k.x), on(k.y)}); });
  }
  void gelu_backward(const GeluBackward& k) override {
    call([&] { ops_->gelu_backward({on(k.x), on(k.dy), on(k.dx)}); });
  }
  [[nodiscard]] double loss_forward(const LossForward& k) override {
    double loss = 0.0;
    call([&] { loss = ops_->loss_forward({on(k.head), on(k.log_sum), k.scale, on(k.dh)}); });
    return loss;
  }
  void loss_backward_table(const LossBackwardTable& k) override {
    call([&] { ops_->loss_backward_table({on(k.head), on(k.log_sum), k.scale, on(k.dwte)}); });
  }
  void logits(const Logits& k) override {
    call([&] { ops_->logits({k.width, k.vocab, on(k.h), on(k.wte), on(k.out)}); });
  }
  [[nodiscard]] std::size_t scratch_bytes() const override { return ops_->scratch_bytes(); }
  [[nodiscard]] std::size_t thread_scratch_bytes() const override {
    return ops_->thread_scratch_bytes();
  }

 private:
  struct Carried {
    DeviceBuffer buffer;
    std::span<std::byte> back;  // empty: nobody writes it
  };

  template <class Body>
  void call(const Body& body) {
    machine_->launch(
        stream_, outboard::sim::Duration{0}, [&](View&) { body(); }, "test");
    for (const auto& [host, carried] : carried_) {
      if (!carried.back.empty()) {
        machine_->copy_to_host(carried.back, carried.buffer.address(), stream_);
      }
    }
    machine_->synchronize(stream_);
    carried_.clear();
  }
  /// The same host memory is the same device memory.
  template <class T>
  std::span<T> on(std::span<T> host) {
    if (host.empty()) return {};
    const auto [at, is_new] = carried_.try_emplace(host.data());
    Carried& carried = at->second;
    if (is_new) {
      carried.buffer = DeviceBuffer(machine_, host.size_bytes());
      machine_->copy_to_device(carried.buffer.address(), std::as_bytes(host), stream_);
    }
    if constexpr (!std::is_const_v<T>) carried.back = std::as_writable_bytes(host);
    return {static_cast<T*>(carried.buffer.address()), host.size()};
  }
  TokenRows on(const TokenRows& rows) { return {on(rows.tokens), rows.rows, rows.context}; }
  Head on(const Head& head) {
    return {on(head.tokens), head.width, head.vocab, on(head.h), on(head.wte)};
  }

  std::shared_ptr<Machine> machine_;
  outboard::NativeStream stream_;
  std::unique_ptr<Ops> ops_;
  std::map<const void*, Carried> carried_;
};

}  // namespace

std::vector<OpsFlavour> ops_flavours() {
  OpsFlavour flavour{.name = "cuda", .make = {}, .rounds_logits = true, .why_not = {}};
  try {
    (void)make_cuda_machine(0);
    flavour.make = [](const GptShape& shape) {
      return std::make_unique<CarriedOps>(make_cuda_machine(0), shape);
    };
  } catch (const std::exception& error) {
    flavour.why_not = error.what();
  }
  return {flavour};
}

}  // namespace gpt::test
