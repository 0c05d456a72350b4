// SPDX-License-Identifier: Apache-2.0
// Memory, pinning, and the calls that queue copies and kernels.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "device/sim/sim_backend.hpp"
#include "outboard/error.hpp"

namespace outboard::sim {
namespace {

/// Whether the host's own limits refuse, rather than something being broken.
bool is_limit(int error) noexcept {
  return error == ENOMEM || error == EPERM || error == EAGAIN;
}

}  // namespace

// --- memory ---

void* SimBackend::allocate(std::size_t bytes) {
  const Lock lock(mutex_);
  require_sound("allocate");
  const std::uint64_t failing = faults_.next(Call::allocate);
  void* address = memory_.allocate(bytes);
  lose_if_failing(Call::allocate, failing);
  return address;
}

device::MemoryInfo SimBackend::memory() const {
  const MemoryUse use = memory_.use();
  return {.limit_bytes = use.limit_bytes, .used_bytes = use.used_bytes};
}

bool SimBackend::register_chunk(std::span<std::byte> memory) {
  {
    const Lock lock(mutex_);
    require_sound("register_host");
    lose_if_failing(Call::register_host, faults_.next(Call::register_host));
    require_sound("register_host");  // no caller knows of what a lost device has registered
    if (memory.empty()) return true;
    if (memory.size() > options_.registration_limit_bytes) return false;
    if (memory.size() > options_.pinned_limit_bytes - registered_bytes_) return false;
    if (!registered_.emplace(memory.data(), memory.size()).second) {
      throw Error(ErrorCode::invalid_argument, "register_host: this memory is registered already");
    }
    registered_bytes_ += memory.size();
  }
  // Without the mutex: locking brings every page in, which takes long.
  if (::mlock(memory.data(), memory.size()) != 0) {
    const int error = errno;
    unregister_chunk(memory);
    if (is_limit(error)) return false;
    throw Error(ErrorCode::device_failure, "register_host: mlock of " +
                                               std::to_string(memory.size()) +
                                               " bytes: " + std::strerror(error));
  }
  return true;
}

void SimBackend::unregister_chunk(std::span<std::byte> memory) noexcept {
  {
    const Lock lock(mutex_);
    const auto found = registered_.find(memory.data());
    if (found == registered_.end()) return;
    registered_bytes_ -= found->second;
    registered_.erase(found);
  }
  (void)::munlock(memory.data(), memory.size());
}

// --- copies and kernels ---

void SimBackend::enqueue(NativeStream handle, Work work, std::int64_t kernel_ns) {
  const char* name = name_of(work);
  const Call call = call_of(work);
  const Lock lock(mutex_);
  require_sound(name);
  Stream& stream = stream_at(handle, name);
  check_ranges(work, memory_);
  const std::uint64_t failing = faults_.next(call);
  const std::int64_t time = kernel_ns >= 0 ? kernel_ns : duration_ns(work, options_.rates);
  push(stream, {.work = std::move(work), .duration_ns = time, .failing_call = failing});
}

void SimBackend::launch(NativeStream stream, std::int64_t duration_ns, Kernel kernel,
                        const char* name) {
  if (!kernel || duration_ns < 0) {
    throw Error(ErrorCode::invalid_argument,
                std::string("launch of '") + name + "': " +
                    (kernel ? "duration " + std::to_string(duration_ns) + " ns is negative"
                            : "the kernel is empty"));
  }
  enqueue(stream, TrainerKernel{std::move(kernel), name}, duration_ns);
}

void SimBackend::require_stream(NativeStream stream) const {
  const Lock lock(mutex_);
  (void)stream_at(stream, "stream");
}

/// As drivers do, which look up the one registration that a copy is in.
void SimBackend::require_one_registration(const char* call, std::span<const std::byte> host) const {
  const Lock lock(mutex_);
  auto next = registered_.upper_bound(host.data());
  std::size_t inside = 0;
  if (next != registered_.begin()) {
    const auto& [first, bytes] = *std::prev(next);
    const auto lead = static_cast<std::size_t>(host.data() - first);
    if (lead < bytes) inside = bytes - lead;
  }
  const bool meets_next = next != registered_.end() && next->first < host.data() + host.size();
  if (inside >= host.size() || (inside == 0 && !meets_next)) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + ": of " + std::to_string(host.size()) +
                  " bytes of host memory the first " + std::to_string(inside) +
                  " lie in a registration that the others are not in; copy each part by itself");
}

void SimBackend::queue_copy_to_host(std::span<std::byte> host_dst, const void* device_src,
                                    NativeStream stream) {
  require_one_registration("copy_to_host", host_dst);
  enqueue(stream, CopyToHost{host_dst, device_src});
}

void SimBackend::queue_copy_to_device(void* device_dst, std::span<const std::byte> host_src,
                                      NativeStream stream) {
  require_one_registration("copy_to_device", host_src);
  enqueue(stream, CopyToDevice{device_dst, host_src});
}

void SimBackend::copy_on_device(void* device_dst, const void* device_src, std::size_t bytes,
                                NativeStream stream) {
  enqueue(stream, CopyOnDevice{device_dst, device_src, bytes});
}

void SimBackend::reduce_gradient(NativeStream stream, simd::ConstElements grad, std::uint64_t elems,
                                 void* scalars) {
  enqueue(stream, ReduceGradient{grad, elems, scalars});
}

void SimBackend::pack_gradient(NativeStream stream, simd::ConstElements grad, std::uint64_t elems,
                               void* packed, void* scalars) {
  enqueue(stream, PackGradient{grad, elems, packed, scalars});
}

void SimBackend::unpack(NativeStream stream, const device::DeviceUnpack& arguments) {
  enqueue(stream, arguments);
}

void SimBackend::accumulate(NativeStream stream, const device::DeviceAccumulate& arguments) {
  enqueue(stream, arguments);
}

void SimBackend::update(NativeStream stream, const device::DeviceUpdate& arguments) {
  enqueue(stream, arguments);
}

void SimBackend::lamb_moments(NativeStream stream, const device::DeviceLambMoments& arguments) {
  enqueue(stream, arguments);
}

void SimBackend::lamb_trust(NativeStream stream, const device::DeviceLambTrust& arguments) {
  enqueue(stream, arguments);
}

void SimBackend::digest(NativeStream stream, const device::DeviceDigest& arguments) {
  enqueue(stream, arguments);
}

void SimBackend::fill(NativeStream stream, simd::Elements dst, std::uint64_t elems,
                      std::uint32_t bits) {
  enqueue(stream, Fill{dst, elems, bits});
}

void SimBackend::fill_zero(NativeStream stream, void* dst, std::size_t bytes) {
  enqueue(stream, FillZero{dst, bytes});
}

void SimBackend::to_float(NativeStream stream, void* dst_fp32, simd::ConstElements src,
                          std::uint64_t elems) {
  enqueue(stream, ToFloat{dst_fp32, src, elems});
}

std::shared_ptr<device::Backend> make_backend(const Options& options) {
  options.validate();
  return options.mode == Mode::threads ? make_thread_backend(options)
                                       : make_virtual_backend(options);
}

}  // namespace outboard::sim
