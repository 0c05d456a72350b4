// SPDX-License-Identifier: Apache-2.0
/// One of NVIDIA's GPUs as the trainer uses it, beside the engine.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "../machine.hpp"
#include "driver.hpp"

namespace gpt::cuda {

enum class KernelName : std::uint8_t {
  embed,
  embed_backward_table,
  embed_backward_places,
  normal,
  normal_backward,
  columns,
  gelu,
  attention,
  attention_backward_query,
  attention_backward_key,
  loss_row,
  sum,
  narrow,
};
inline constexpr std::size_t kKernels = 13;

struct Grid {
  std::uint64_t blocks = 1;
  unsigned threads = 1;
  std::size_t shared_floats = 0;
};

class CudaMachine final : public Machine {
 public:
  explicit CudaMachine(int ordinal);
  ~CudaMachine() override;

  [[nodiscard]] outboard::Device device() const override { return device_; }
  [[nodiscard]] std::unique_ptr<Ops> make_ops(const GptShape& shape, std::size_t threads) override;
  [[nodiscard]] bool times_calls() const override { return false; }

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  void release(void* address) noexcept override;
  /// Of the whole GPU, other programs included.
  [[nodiscard]] outboard::sim::MemoryUse memory() const override;
  [[nodiscard]] outboard::sim::Duration now() const override;

  [[nodiscard]] outboard::NativeStream create_stream(const char* name) override;
  void synchronize(outboard::NativeStream stream) override;
  void copy_to_device(void* to, std::span<const std::byte> from,
                      outboard::NativeStream stream) override;
  void copy_to_host(std::span<std::byte> to, const void* from,
                    outboard::NativeStream stream) override;
  void launch(outboard::NativeStream stream, outboard::sim::Duration charged, OperatorCall call,
              const char* name) override;
  void run_on_host(outboard::NativeStream stream, std::function<void()> function) override;

  // --- for the operators, inside launch() ---
  /// The stream of that call; outside, the first one made.
  [[nodiscard]] CUstream stream() const noexcept { return current_; }
  template <class Arguments>
  void run(KernelName kernel, const Grid& grid, Arguments arguments) {
    run_raw(kernel, grid, &arguments);
  }
  [[nodiscard]] const Driver& api() const noexcept { return api_; }

  /// Makes the context current for the caller's thread while it lives.
  class Current {
   public:
    explicit Current(const CudaMachine& machine);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Driver& api_;
  };

 private:
  struct HostCall {
    CudaMachine* machine = nullptr;
    std::function<void()> function;
    HostCall* next = nullptr;
  };
  void run_raw(KernelName kernel, const Grid& grid, void* arguments);
  static void call_on_host(void* call) noexcept;

  outboard::Device device_;  // first: it says why there is none
  const Driver& api_;
  CUdevice number_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  std::array<CUfunction, kKernels> functions_{};
  std::vector<CUstream> streams_;
  CUstream current_ = nullptr;
  mutable std::size_t peak_bytes_ = 0;
  std::mutex mutex_;  // of the free calls
  std::deque<HostCall> calls_;
  HostCall* free_ = nullptr;
};

}  // namespace gpt::cuda
