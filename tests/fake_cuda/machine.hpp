// SPDX-License-Identifier: Apache-2.0
/// The state behind the stand-in's calls.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "device/sim/sim_backend.hpp"
#include "fake_cuda/fake_cuda.hpp"

namespace outboard::fake_cuda {

/// One CUstream: a stream of the software GPU.
struct FakeStream {
  NativeStream on;
  bool blocking = false;  ///< takes turns with the legacy stream
};
struct FakeEvent {
  device::Event event;
  bool timed = false;
  bool recorded = false;
};
/// A word that streams wait for, and the flag that stands for it.
struct WatchedWord {
  const std::uint32_t* word = nullptr;
  device::Flag flag;
  std::uint32_t seen = 0;
};

/// One device with its primary context.
class FakeDevice {
 public:
  FakeDevice(int number, const Machine& machine);
  ~FakeDevice();

  [[nodiscard]] CUcontext context() noexcept { return reinterpret_cast<CUcontext>(this); }

  /// A stream that cuStreamCreate() made, a default one, or one that a test made on gpu_of().
  /// @throws Error{invalid_argument} for what is no live stream.
  FakeStream& stream(CUstream handle);
  /// The rest of the live allocation from `address` on; 0: there is none.
  [[nodiscard]] std::size_t room_from(CUdeviceptr address) const;
  /// Runs `queue` with the stream, with what the legacy stream's rules add before and after.
  template <class Queue>
  void in_order(CUstream handle, Queue queue) {
    FakeStream& target = stream(handle);
    before(target);
    queue(target.on);
    after(target);
  }
  void wait_word(CUstream handle, const std::uint32_t* word, std::uint32_t value);
  void look_at_words() noexcept;
  /// Words in host memory that goes are nobody's any more.
  void forget_words(const void* memory, std::size_t bytes);

  const int number;
  const Machine machine;
  std::uint64_t next_handle;  ///< no two devices share a number
  std::uint32_t retained = 0;
  std::shared_ptr<sim::SimBackend> backend;
  std::map<CUstream, FakeStream> streams;
  std::map<CUevent, FakeEvent> events;
  std::set<CUmodule> modules;
  std::map<void*, std::size_t> registrations;
  std::map<CUdeviceptr, std::size_t> allocations;

 private:
  void before(const FakeStream& target);
  void after(const FakeStream& target);
  void watch() noexcept;

  std::map<CUstream, FakeStream> trainers_;
  FakeStream legacy_;
  FakeStream per_thread_;
  std::mutex words_mutex_;
  std::vector<WatchedWord> words_;
  std::atomic<bool> stopping_{false};
  std::thread watcher_;
};

/// Everything. One mutex, as the calls are short; what waits gives it back.
struct World {
  std::mutex mutex;
  Machine machine;
  std::vector<std::unique_ptr<FakeDevice>> devices;
  std::map<void*, std::size_t> host_allocations;
  std::vector<Failure> failures;
  std::map<std::string, std::uint64_t> calls;
  std::uint64_t calls_made = 0;
  std::string failed_call;
  CUresult sticky = CUDA_SUCCESS;
};
World& world();

/// The device whose context is current on this thread; null: none is.
FakeDevice* current() noexcept;
void push(FakeDevice* device);
FakeDevice* pop() noexcept;

/// Counts a call, and whether it is to fail.
[[nodiscard]] CUresult begin(const char* call);
/// What an exception of the software GPU is to the driver's callers.
[[nodiscard]] CUresult result_of(const std::exception& error) noexcept;

/// Runs one call's body on the current device, which returns a CUresult.
template <class Body>
CUresult on_current(const char* call, Body body) noexcept {
  try {
    World& all = world();
    const std::unique_lock lock(all.mutex);
    if (const CUresult result = begin(call); result != CUDA_SUCCESS) return result;
    FakeDevice* const device = current();
    if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (device->backend->lost()) return all.sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
    return body(*device);
  } catch (const std::exception& error) {
    return result_of(error);
  }
}
/// One that needs no context.
template <class Body>
CUresult anywhere(const char* call, Body body) noexcept {
  try {
    World& all = world();
    const std::unique_lock lock(all.mutex);
    if (const CUresult result = begin(call); result != CUDA_SUCCESS) return result;
    return body(all);
  } catch (const std::exception& error) {
    return result_of(error);
  }
}

/// How a kernel was launched.
struct LaunchSize {
  std::uint64_t blocks = 1;
  unsigned threads = 1;
  std::size_t shared_bytes = 0;
};
/// Runs the kernel of that name on host versions. @throws Error for an unknown one.
void run_kernel(const std::string& name, const void* arguments, const LaunchSize& size,
                sim::KernelView& view);
[[nodiscard]] bool is_kernel(const std::string& name);
/// How many bytes its arguments are.
[[nodiscard]] std::size_t argument_bytes(const std::string& name);

/// Those of examples/gpt.
[[nodiscard]] bool is_gpt_kernel(const std::string& name);
[[nodiscard]] std::size_t gpt_argument_bytes(const std::string& name);
void run_gpt_kernel(const std::string& name, const void* arguments, const LaunchSize& size,
                    sim::KernelView& view);

}  // namespace outboard::fake_cuda
