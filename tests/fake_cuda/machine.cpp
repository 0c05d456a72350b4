// SPDX-License-Identifier: Apache-2.0
#include "fake_cuda/machine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "outboard/error.hpp"

namespace outboard::fake_cuda {
namespace {

thread_local std::vector<FakeDevice*> context_stack;

bool stays(CUresult result) {
  return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED ||
         result == CUDA_ERROR_ECC_UNCORRECTABLE || result == CUDA_ERROR_UNKNOWN;
}

}  // namespace

World& world() {
  static World all;  // made on first use: calls may come before other static objects are made
  return all;
}

namespace {

/// For programs that know nothing of the stand-in: OUTBOARD_FAKE_CUDA_MEMORY, bytes of one device
/// that is there from the start.
[[gnu::constructor]] void start_for_programs() {
  const char* const bytes = std::getenv("OUTBOARD_FAKE_CUDA_MEMORY");
  if (bytes == nullptr) return;
  Machine machine;
  machine.device.memory_bytes = std::strtoull(bytes, nullptr, 10);
  start(machine);
}

}  // namespace

FakeDevice* current() noexcept {
  return context_stack.empty() ? nullptr : context_stack.back();
}
void push(FakeDevice* device) {
  context_stack.push_back(device);
}
FakeDevice* pop() noexcept {
  if (context_stack.empty()) return nullptr;
  FakeDevice* const top = context_stack.back();
  context_stack.pop_back();
  return top;
}

CUresult begin(const char* call) {
  World& all = world();
  ++all.calls_made;
  const std::uint64_t number = ++all.calls[call];
  for (const Failure& failure : all.failures) {
    const bool hit = failure.call.empty() ? failure.nth == all.calls_made
                                          : failure.call == call && failure.nth == number;
    if (!hit) continue;
    all.failed_call = call;
    const auto result = static_cast<CUresult>(failure.result);
    if (stays(result)) {
      all.sticky = result;
      for (const auto& device : all.devices) device->backend->break_down("made to fail");
    }
    return result;
  }
  // Errors can be named on a device that is lost.
  const bool names = std::string_view(call).starts_with("cuGetError");
  return names ? CUDA_SUCCESS : all.sticky;
}

CUresult result_of(const std::exception& error) noexcept {
  const auto* const known = dynamic_cast<const Error*>(&error);
  if (known == nullptr) return CUDA_ERROR_UNKNOWN;
  switch (known->code()) {
    case ErrorCode::out_of_memory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case ErrorCode::invalid_argument:
      return CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
}

FakeDevice::FakeDevice(int at, const Machine& played)
    : number(at),
      machine(played),
      next_handle((std::uint64_t{0xC0DA} << 48) + (static_cast<std::uint64_t>(at) << 40)),
      backend(std::static_pointer_cast<sim::SimBackend>(sim::make_backend(played.device))) {
  legacy_ = {backend->create_stream("legacy"), true};
  per_thread_ = {backend->create_stream("per thread"), true};
  if (core::VirtualLoop* const loop = backend->virtual_loop(); loop != nullptr) {
    loop->before_each([this] { look_at_words(); });
  } else {
    watcher_ = std::thread([this] { watch(); });
  }
}

FakeDevice::~FakeDevice() {
  stopping_.store(true);
  if (watcher_.joinable()) watcher_.join();
  if (core::VirtualLoop* const loop = backend->virtual_loop(); loop != nullptr) {
    loop->before_each({});
  }
}

FakeStream& FakeDevice::stream(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return legacy_;
  if (handle == CU_STREAM_PER_THREAD) return per_thread_;
  const auto found = streams.find(handle);
  if (found != streams.end()) return found->second;
  const NativeStream on{reinterpret_cast<std::uintptr_t>(handle)};
  backend->require_stream(on);
  return trainers_[handle] = {on, false};
}

std::size_t FakeDevice::room_from(CUdeviceptr address) const {
  const auto is_live = [&](std::size_t bytes) {
    try {
      backend->check_range(reinterpret_cast<const void*>(address), bytes);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  if (!is_live(1)) return 0;
  std::size_t room = 1;
  for (std::size_t step = std::size_t{1} << 40; step > 0; step /= 2) {
    if (is_live(room + step)) room += step;
  }
  return room;
}

/// The legacy stream waits for what every blocking stream has queued.
void FakeDevice::before(const FakeStream& target) {
  if (&target != &legacy_) return;
  const auto wait_for = [&](const FakeStream& other) {
    const device::Event event = backend->create_event();
    backend->record(event, other.on);
    backend->wait_event(legacy_.on, event);
    backend->destroy_event(event);
  };
  wait_for(per_thread_);
  for (const auto& [handle, other] : streams) {
    if (other.blocking) wait_for(other);
  }
}

/// And they wait for it.
void FakeDevice::after(const FakeStream& target) {
  if (&target != &legacy_) return;
  const device::Event event = backend->create_event();
  backend->record(event, legacy_.on);
  backend->wait_event(per_thread_.on, event);
  for (const auto& [handle, other] : streams) {
    if (other.blocking) backend->wait_event(other.on, event);
  }
  backend->destroy_event(event);
}

void FakeDevice::wait_word(CUstream handle, const std::uint32_t* word, std::uint32_t value) {
  look_at_words();
  const std::scoped_lock lock(words_mutex_);
  auto found = std::ranges::find(words_, word, &WatchedWord::word);
  if (found == words_.end()) {
    words_.push_back({word, backend->create_flag(), 0});
    found = std::prev(words_.end());
  }
  in_order(handle, [&](NativeStream on) { backend->wait_flag(on, found->flag, value); });
}

/// A host thread's store to a word is seen by nobody; so the words are looked at.
void FakeDevice::look_at_words() noexcept {
  const std::scoped_lock lock(words_mutex_);
  for (WatchedWord& watched : words_) {
    auto& word = *const_cast<std::uint32_t*>(watched.word);
    const std::uint32_t value = std::atomic_ref<std::uint32_t>(word).load();
    if (value == watched.seen) continue;
    watched.seen = value;
    backend->write_flag(watched.flag, value);
  }
}

void FakeDevice::forget_words(const void* memory, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(memory);
  const std::scoped_lock lock(words_mutex_);
  std::erase_if(words_, [&](const WatchedWord& watched) {
    const bool gone = reinterpret_cast<std::uintptr_t>(watched.word) - first < bytes;
    if (gone) backend->destroy_flag(watched.flag);
    return gone;
  });
}

void FakeDevice::watch() noexcept {
  while (!stopping_.load()) {
    look_at_words();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// --- what tests say ---

void start(const Machine& machine) {
  World& all = world();
  const std::unique_lock lock(all.mutex);
  all.devices.clear();
  for (const auto& [memory, bytes] : all.host_allocations) std::free(memory);
  all.host_allocations.clear();
  all.machine = machine;
  all.failures.clear();
  all.calls.clear();
  all.calls_made = 0;
  all.failed_call.clear();
  all.sticky = CUDA_SUCCESS;
  for (std::uint32_t i = 0; i < machine.devices; ++i) {
    all.devices.push_back(std::make_unique<FakeDevice>(static_cast<int>(i), machine));
  }
}

core::VirtualLoop* loop_of(int ordinal) {
  return world().devices.at(static_cast<std::size_t>(ordinal))->backend->virtual_loop();
}

sim::Gpu gpu_of(int ordinal) {
  return sim::Gpu(Device(world().devices.at(static_cast<std::size_t>(ordinal))->backend));
}

void fail(const Failure& failure) {
  World& all = world();
  const std::unique_lock lock(all.mutex);
  all.failures.push_back(failure);
}

std::string failed_call() {
  World& all = world();
  const std::unique_lock lock(all.mutex);
  return all.failed_call;
}

std::uint64_t calls_made() {
  World& all = world();
  const std::unique_lock lock(all.mutex);
  return all.calls_made;
}

std::uint64_t calls_of(const char* call) {
  World& all = world();
  const std::unique_lock lock(all.mutex);
  const auto found = all.calls.find(call);
  return found == all.calls.end() ? 0 : found->second;
}

Live live() {
  World& all = world();
  const std::unique_lock lock(all.mutex);
  Live sum;
  for (const auto& device : all.devices) {
    sum.contexts += device->retained;
    sum.streams += device->streams.size();
    sum.events += device->events.size();
    sum.allocations += device->allocations.size();
    sum.modules += device->modules.size();
    sum.registrations += device->registrations.size();
  }
  sum.host_allocations = all.host_allocations.size();
  return sum;
}

void launch(int ordinal, std::uint64_t stream, sim::Duration duration, sim::Kernel kernel) {
  World& all = world();
  const std::unique_lock lock(all.mutex);
  FakeDevice& device = *all.devices.at(static_cast<std::size_t>(ordinal));
  device.in_order(reinterpret_cast<CUstream>(stream), [&](NativeStream on) {
    device.backend->launch(on, duration.count(), std::move(kernel), "a trainer's kernel");
  });
}

void* bytes_of(sim::KernelView& view, const void* address, std::size_t bytes) {
  return view.as<std::byte>(address, bytes).data();
}

}  // namespace outboard::fake_cuda
