// SPDX-License-Identifier: Apache-2.0
// Making and ending the device, its failures, and its memory.
#include "device/cuda/cuda_backend.hpp"

#include <iterator>
#include <sstream>

#include "device/cuda/check.hpp"
#include "outboard/error.hpp"

namespace outboard::device::cuda {
namespace {

std::uint32_t next_tag() {
  static std::atomic<std::uint32_t> next{0};
  return next.fetch_add(1);
}

std::uintptr_t number_of(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

[[noreturn]] void refuse_range(const void* address, std::size_t bytes, const std::string& why) {
  std::ostringstream text;
  text << "device range of " << bytes << " bytes at " << address << ": " << why;
  throw Error(ErrorCode::invalid_argument, text.str());
}

}  // namespace

CudaBackend::CudaBackend(int ordinal, const Clock& clock)
    : clock_(clock),
      start_(std::chrono::steady_clock::now()),
      context_(ordinal),
      api_(context_.api()),
      waiter_(clock.loop != nullptr ? core::make_virtual_waiter(*clock.loop)
                                    : core::make_polling_waiter([this] { poll(); })),
      mailbox_(std::make_unique<Mailbox>(clock.loop)),
      host_norm_(context_),
      words_(context_),
      events_(next_tag(), "event"),
      flags_(next_tag(), "flag") {
  try {
    load_kernels();
    stream_memory_ops_ = can_wait_for_words();
  } catch (...) {
    give_back_all();
    throw;
  }
}

void CudaBackend::load_kernels() {
  try {
    kernels_ = std::make_unique<Kernels>(context_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    why_no_kernels_ = error.what();
  }
}

/// No attribute tells it of the call's second version: so it is tried, on a word that has its
/// value.
bool CudaBackend::can_wait_for_words() {
  const Current current(context_);
  const FlagState flag = words_.take();
  CUstream stream = nullptr;
  require(api_.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const CUresult result = api_.stream_wait_value(stream, flag.address, 0, CU_STREAM_WAIT_VALUE_GEQ);
  const CUresult waited = api_.stream_synchronize(stream);
  (void)api_.stream_destroy(stream);
  words_.give_back(flag);
  if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED) return false;
  require(result, "cuStreamWaitValue32_v2");
  require(waited, "cuStreamSynchronize");
  return true;
}

CudaBackend::~CudaBackend() {
  give_back_all();
}

void CudaBackend::give_back_all() noexcept {
  try {
    const Current current(context_);
    for (auto& [handle, lane] : lanes_) {
      CUstream stream = stream_handle(handle);
      if (lane->own && !lost()) (void)api_.stream_synchronize(stream);
      close_lane(*lane);
      if (lane->own) (void)api_.stream_destroy(stream);
    }
    events_.for_each([&](EventState& event) { (void)api_.event_destroy(event.handle); });
    for (const auto& [address, bytes] : allocations_) (void)api_.memory_free(address);
    words_.clear();
    kernels_.reset();
  } catch (const Error&) {  // no context to be made current: the driver is shutting down
  }
  mailbox_->close();
}

double CudaBackend::host_elems_per_s(std::uint32_t /*node*/) const noexcept {
  return clock_.host_elems_per_s;
}

std::int64_t CudaBackend::now_ns() const noexcept {
  if (clock_.loop != nullptr) return clock_.loop->now();
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count();
}

// --- failures ---

std::string CudaBackend::lost_reason() const {
  const std::scoped_lock lock(reason_mutex_);
  return lost_reason_;
}

void CudaBackend::lose(const std::string& reason) const noexcept {
  {
    const std::scoped_lock lock(reason_mutex_);
    if (lost_.load()) return;
    lost_reason_ = reason;
    lost_.store(true);
  }
  waiter_->wake();
}

void CudaBackend::require_sound(const char* call) const {
  if (!lost()) return;
  throw Error(ErrorCode::device_failure,
              std::string(call) + ": the device was lost: " + lost_reason());
}

void CudaBackend::require(CUresult result, const char* call, const Subject& subject) const {
  if (result == CUDA_SUCCESS) return;
  try {
    context_.require(result, call, subject);
  } catch (const Error& error) {
    if (is_sticky(result)) lose(error.what());
    throw;
  }
}

void CudaBackend::poll() const noexcept {
  if (lost()) return;
  try {
    const Current current(context_);
    std::size_t free = 0;
    std::size_t total = 0;
    require(api_.memory_info(&free, &total), "cuMemGetInfo_v2", {"(after work that failed)"});
  } catch (const Error& error) {
    lose(error.what());
  }
}

// --- memory ---

void* CudaBackend::allocate(std::size_t bytes) {
  const Lock lock(mutex_);
  require_sound("allocate");
  const Current current(context_);
  const std::size_t taken = bytes == 0 ? 1 : bytes;
  CUdeviceptr address = 0;
  const CUresult result = api_.memory_allocate(&address, taken);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    std::size_t free = 0;
    std::size_t total = 0;
    require(api_.memory_info(&free, &total), "cuMemGetInfo_v2");
    throw Error(ErrorCode::out_of_memory,
                "device memory: " + std::to_string(bytes) + " bytes asked, " +
                    std::to_string(total - free) + " of " + std::to_string(total) +
                    " used on device " + std::to_string(context_.ordinal()) +
                    "; release memory, or leave more of it to the engine");
  }
  require(result, "cuMemAlloc_v2", {"bytes", bytes});
  try {
    allocations_.emplace(static_cast<std::uintptr_t>(address), taken);
  } catch (...) {
    (void)api_.memory_free(address);
    throw;
  }
  return pointer_of(address);
}

void CudaBackend::release(void* address) noexcept {
  try {
    const Lock lock(mutex_);
    if (allocations_.erase(number_of(address)) == 0) return;
    const Current current(context_);
    (void)api_.memory_free(number_of(address));
  } catch (const Error&) {  // the context is gone, and the memory with it
  }
}

MemoryInfo CudaBackend::memory() const {
  const Current current(context_);
  std::size_t free = 0;
  std::size_t total = 0;
  require(api_.memory_info(&free, &total), "cuMemGetInfo_v2");
  return {.limit_bytes = total, .used_bytes = total - free};
}

void CudaBackend::check_range(const void* address, std::size_t bytes) const {
  const Lock lock(mutex_);
  const Current current(context_);
  check_device_range(address, bytes);
}

/// Own memory by the table; anything else by what the driver knows of it.
void CudaBackend::check_device_range(const void* address, std::size_t bytes) const {
  if (bytes == 0) return;
  const std::uintptr_t at = number_of(address);
  const auto next = allocations_.upper_bound(at);
  if (next != allocations_.begin()) {
    const auto& [first, size] = *std::prev(next);
    if (at - first < size) {
      if (bytes <= size - (at - first)) return;
      refuse_range(address, bytes, "reaches past the end of its allocation");
    }
  }
  CUdeviceptr first = 0;
  std::size_t size = 0;
  int ordinal = -1;
  const auto ask = [&](CUpointer_attribute attribute, void* answer) {
    const CUresult result = api_.pointer_attribute(answer, attribute, at);
    if (result == CUDA_ERROR_INVALID_VALUE) {
      refuse_range(address, bytes, "not device memory, or already released");
    }
    require(result, "cuPointerGetAttribute", {"bytes to be looked at", bytes});
  };
  ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, &ordinal);
  ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, &first);
  ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, &size);
  if (first == 0) refuse_range(address, bytes, "not device memory");
  if (ordinal != context_.ordinal()) {
    refuse_range(address, bytes,
                 "memory of device " + std::to_string(ordinal) + ", not of device " +
                     std::to_string(context_.ordinal()));
  }
  if (bytes > size - (at - first)) {
    refuse_range(address, bytes, "reaches past the end of its allocation");
  }
}

void CudaBackend::check_elements(simd::ConstElements at, std::uint64_t elems) const {
  check_device_range(at.data, elems * simd::format_bytes(at.format));
  if (elems > 0 && number_of(at.data) % simd::format_bytes(at.format) != 0) {
    refuse_range(at.data, elems, "not aligned to its element type");
  }
}

bool CudaBackend::register_chunk(std::span<std::byte> memory) {
  require_sound("register_host");
  if (memory.empty()) return true;
  const Current current(context_);
  const CUresult result =
      api_.host_register(memory.data(), memory.size(), CU_MEMHOSTREGISTER_PORTABLE);
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_INVALID_VALUE:  // how drivers refuse what exceeds a limit on locked memory
      return false;
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
      throw Error(ErrorCode::invalid_argument, "register_host: this memory is registered already");
    default:
      require(result, "cuMemHostRegister_v2", {"bytes", memory.size()});
      return true;
  }
}

void CudaBackend::unregister_chunk(std::span<std::byte> memory) noexcept {
  if (memory.empty()) return;
  try {
    const Current current(context_);
    (void)api_.host_unregister(memory.data());
  } catch (const Error&) {  // the context is gone, and its registrations with it
  }
}

}  // namespace outboard::device::cuda
