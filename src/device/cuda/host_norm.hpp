// SPDX-License-Identifier: Apache-2.0
/// The norm of a gradient where the device runs no kernels: in pieces through a pinned buffer, on
/// the processor, and its scalars back to the device. All of it in the order of one stream.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "device/backend.hpp"
#include "device/cuda/context.hpp"

namespace outboard::device::cuda {

/// One stream's buffer, taken when it first needs one.
struct NormRoom {
  void* memory = nullptr;
};

/// Calls need the context to be current. Not thread-safe, but for the host functions it queues.
/// Allocates only when more pieces are under way than ever before.
class HostNorm {
 public:
  explicit HostNorm(const Context& context) : context_(context) {}
  HostNorm(const HostNorm&) = delete;
  HostNorm& operator=(const HostNorm&) = delete;

  /// Queues the reduction of a gradient in device memory into the GradientScalars at `scalars`: 2
  /// to 4 bytes of each element cross the link, and the stream goes on after that.
  /// @throws Error{device_failure}.
  void queue(CUstream stream, NormRoom& room, simd::ConstElements grad, std::uint64_t elems,
             void* scalars);
  /// Nothing of the stream is under way.
  void give_back(NormRoom& room) noexcept;

 private:
  struct Piece {
    HostNorm* owner = nullptr;
    NormRoom* room = nullptr;
    simd::Format format = simd::Format::f16;
    std::uint64_t first = 0, count = 0;  // elements of the parameter
    Piece* next = nullptr;               // of those that are free
  };
  [[nodiscard]] Piece* take();
  void recycle(Piece* piece) noexcept;
  void require(CUresult result, const char* call, std::uint64_t bytes) const {
    context_.require(result, call, {"bytes for a norm on the host", bytes});
  }
  static void reduce(void* piece) noexcept;

  const Context& context_;
  std::mutex mutex_;  // of the free pieces: host functions give them back
  std::deque<Piece> pieces_;
  Piece* free_ = nullptr;
};

}  // namespace outboard::device::cuda
