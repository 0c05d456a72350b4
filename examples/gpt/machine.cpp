// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

namespace gpt {
namespace {

namespace sim = outboard::sim;
using outboard::NativeStream;

class SimMachine final : public Machine {
 public:
  explicit SimMachine(sim::Gpu gpu) : gpu_(std::move(gpu)) {}

  [[nodiscard]] outboard::Device device() const override { return gpu_.device(); }
  [[nodiscard]] std::unique_ptr<Ops> make_ops(const GptShape& shape, std::size_t threads) override {
    return make_host_ops(shape, threads);
  }
  [[nodiscard]] bool times_calls() const override { return true; }

  [[nodiscard]] void* allocate(std::size_t bytes) override { return gpu_.allocate(bytes); }
  void release(void* address) noexcept override {
    try {
      gpu_.release(address);
    } catch (const outboard::Error&) {
      // Only a lost device refuses, and it has been reported where it was lost.
    }
  }
  [[nodiscard]] sim::MemoryUse memory() const override { return gpu_.memory(); }
  [[nodiscard]] sim::Duration now() const override { return gpu_.now(); }

  [[nodiscard]] NativeStream create_stream(const char* name) override {
    return gpu_.create_stream(name);
  }
  void synchronize(NativeStream stream) override { gpu_.synchronize(stream); }
  void copy_to_device(void* to, std::span<const std::byte> from, NativeStream stream) override {
    gpu_.copy_to_device(to, from, stream);
  }
  void copy_to_host(std::span<std::byte> to, const void* from, NativeStream stream) override {
    gpu_.copy_to_host(to, from, stream);
  }
  void launch(NativeStream stream, sim::Duration charged, OperatorCall call,
              const char* name) override {
    gpu_.launch(
        stream, charged,
        [call = std::move(call)](sim::KernelView& kernel) {
          View view(kernel);
          call(view);
        },
        name);
  }
  void run_on_host(NativeStream stream, std::function<void()> function) override {
    gpu_.launch(
        stream, sim::Duration{0},
        [function = std::move(function)](sim::KernelView&) { function(); }, "host");
  }

 private:
  sim::Gpu gpu_;
};

}  // namespace

std::shared_ptr<Machine> make_machine(outboard::sim::Gpu gpu) {
  return std::make_shared<SimMachine>(std::move(gpu));
}

}  // namespace gpt
