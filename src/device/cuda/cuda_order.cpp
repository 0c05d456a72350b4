// SPDX-License-Identifier: Apache-2.0
// What orders work: streams, events, notifications and flags.
#include <atomic>
#include <utility>

#include "device/cuda/cuda_backend.hpp"
#include "outboard/error.hpp"

namespace outboard::device::cuda {
namespace {

CUstream native(NativeStream stream) {
  return stream_handle(stream.value);
}
NativeStream handle_of(CUstream stream) {
  return {reinterpret_cast<std::uintptr_t>(stream)};
}

}  // namespace

// --- streams ---

/// Non-blocking, all of them: a blocking stream would take turns with the legacy stream, on which a
/// framework's work may run.
NativeStream CudaBackend::create_stream(const char* name) {
  const Lock lock(mutex_);
  require_sound("create_stream");
  const Current current(context_);
  CUstream stream = nullptr;
  require(api_.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate", {name});
  try {
    auto lane = make_lane(name, true);
    lanes_[handle_of(stream).value] = std::move(lane);
    destroyed_.erase(handle_of(stream).value);
  } catch (...) {
    (void)api_.stream_destroy(stream);
    throw;
  }
  return handle_of(stream);
}

std::unique_ptr<CudaBackend::Lane> CudaBackend::make_lane(const char* name, bool own) {
  auto lane = std::make_unique<Lane>();
  lane->name = name;
  lane->own = own;
  require(api_.stream_create(&lane->notes, CU_STREAM_NON_BLOCKING), "cuStreamCreate", {name});
  const CUresult result = api_.memory_allocate(&lane->blocks, kBlocksOfLane * sizeof(BlockScalars));
  if (result != CUDA_SUCCESS) {
    (void)api_.stream_destroy(lane->notes);
    require(result, "cuMemAlloc_v2", {"bytes for sums", kBlocksOfLane * sizeof(BlockScalars)});
  }
  return lane;
}

/// Its stream is empty, or the device is lost. Waits for what is under way.
void CudaBackend::close_lane(Lane& lane) noexcept {
  if (!lost()) {
    (void)api_.stream_synchronize(lane.notes);
    if (clock_.loop == nullptr && !lost()) mailbox_->wait_idle(lane.pending);
  }
  (void)api_.stream_destroy(lane.notes);
  (void)api_.memory_free(lane.blocks);
  host_norm_.give_back(lane.norm);
}

void CudaBackend::destroy_stream(NativeStream stream) noexcept {
  try {
    const Current current(context_);
    if (!lost()) (void)api_.stream_synchronize(native(stream));
    std::unique_ptr<Lane> lane;
    {
      const Lock lock(mutex_);
      const auto found = lanes_.find(stream.value);
      if (found == lanes_.end() || !found->second->own) return;
      lane = std::move(found->second);
      lanes_.erase(found);
      destroyed_.insert(stream.value);
      events_.for_each([&](EventState& event) {
        if (event.lane == lane.get()) event.lane = nullptr;
      });
    }
    close_lane(*lane);
    (void)api_.stream_destroy(native(stream));
  } catch (...) {  // no context to be made current: it is gone, and the stream with it
  }
}

/// @throws Error{invalid_argument} for a stream of another device, or one that was destroyed.
CUstream CudaBackend::stream_of(NativeStream stream, const char* call) const {
  if (lanes_.contains(stream.value)) return native(stream);
  CUcontext context = nullptr;
  const CUresult result = destroyed_.contains(stream.value)
                              ? CUDA_ERROR_INVALID_HANDLE
                              : api_.stream_context(native(stream), &context);
  if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_VALUE) {
    throw Error(ErrorCode::invalid_argument, std::string(call) +
                                                 ": no live stream of this device has handle " +
                                                 std::to_string(stream.value));
  }
  require(result, "cuStreamGetCtx", {call});
  if (context == context_.handle()) return native(stream);
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + ": stream " + std::to_string(stream.value) +
                  " belongs to another device, or not to the primary context of device " +
                  std::to_string(context_.ordinal()));
}

CudaBackend::Lane& CudaBackend::lane_of(NativeStream stream) {
  const auto found = lanes_.find(stream.value);
  if (found != lanes_.end()) return *found->second;
  auto lane = make_lane("the caller's stream", false);
  return *lanes_.emplace(stream.value, std::move(lane)).first->second;
}

// --- events ---

Event CudaBackend::make_event(bool timed) {
  const Lock lock(mutex_);
  require_sound("create_event");
  const Current current(context_);
  CUevent handle = nullptr;
  // Waiting threads sleep: the cores are for updates.
  const unsigned flags =
      unsigned{CU_EVENT_BLOCKING_SYNC} | (timed ? 0U : unsigned{CU_EVENT_DISABLE_TIMING});
  require(api_.event_create(&handle, flags), "cuEventCreate");
  try {
    const Event event{events_.create()};
    events_.at(event.index, "create_event") = {handle, timed, false, nullptr};
    return event;
  } catch (...) {
    (void)api_.event_destroy(handle);
    throw;
  }
}

void CudaBackend::destroy_event(Event event) noexcept {
  try {
    const Lock lock(mutex_);
    const EventState* state = events_.find(event.index);
    if (state == nullptr) return;
    const Current current(context_);
    (void)api_.event_destroy(state->handle);
    (void)events_.destroy(event.index);
  } catch (const Error&) {  // the context is gone, and the event with it
  }
}

void CudaBackend::record(Event event, NativeStream stream) {
  const Lock lock(mutex_);
  require_sound("record");
  EventState& state = events_.at(event.index, "record");
  const Current current(context_);
  CUstream on = stream_of(stream, "record");
  Lane& lane = lane_of(stream);
  require(api_.event_record(state.handle, on), "cuEventRecord", {lane.name.c_str()});
  state.recorded = true;
  state.lane = &lane;
}

void CudaBackend::wait_event(NativeStream stream, Event event) {
  const Lock lock(mutex_);
  require_sound("wait_event");
  const EventState& state = events_.at(event.index, "wait_event");
  const Current current(context_);
  CUstream on = stream_of(stream, "wait_event");
  if (!state.recorded) return;
  require(api_.stream_wait_event(on, state.handle, 0), "cuStreamWaitEvent");
}

bool CudaBackend::reached(Event event) const {
  const Lock lock(mutex_);
  require_sound("reached");
  const EventState& state = events_.at(event.index, "reached");
  if (!state.recorded) return true;
  const Current current(context_);
  const CUresult result = api_.event_query(state.handle);
  if (result == CUDA_ERROR_NOT_READY) return false;
  require(result, "cuEventQuery");
  return true;
}

/// Through a stream beside the event's own, which a host function would hold up.
void CudaBackend::notify(Event event, core::Callback callback) {
  const Lock lock(mutex_);
  require_sound("notify");
  const EventState& state = events_.at(event.index, "notify");
  if (!callback) throw Error(ErrorCode::invalid_argument, "notify: the callback is null");
  const Current current(context_);
  Lane& lane = state.lane != nullptr ? *state.lane : lane_of(NativeStream{});
  if (state.recorded) {
    require(api_.stream_wait_event(lane.notes, state.handle, 0), "cuStreamWaitEvent",
            {lane.name.c_str()});
  }
  Mailbox::Note* const note = mailbox_->write(callback, lane.pending);
  const CUresult result = api_.launch_host_function(lane.notes, &Mailbox::arrive, note);
  if (result != CUDA_SUCCESS) mailbox_->cancel(note);
  require(result, "cuLaunchHostFunc", {lane.name.c_str()});
}

double CudaBackend::elapsed_us(Event from, Event to) const {
  const Lock lock(mutex_);
  require_sound("elapsed_us");
  const EventState& first = events_.at(from.index, "elapsed_us");
  const EventState& last = events_.at(to.index, "elapsed_us");
  for (const EventState* state : {&first, &last}) {
    if (!state->timed || !state->recorded) {
      throw Error(ErrorCode::invalid_argument,
                  std::string("elapsed_us: an event ") +
                      (state->timed ? "was never recorded" : "was made without a time"));
    }
  }
  const Current current(context_);
  float milliseconds = 0.0F;
  const CUresult result = api_.event_elapsed(&milliseconds, first.handle, last.handle);
  if (result == CUDA_ERROR_NOT_READY) {
    throw Error(ErrorCode::invalid_argument, "elapsed_us: an event is not reached yet");
  }
  require(result, "cuEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e3;
}

/// Without the mutex: other threads go on meanwhile.
void CudaBackend::synchronize(Event event, const char* who) {
  CUevent handle = nullptr;
  {
    const Lock lock(mutex_);
    require_sound("synchronize");
    const EventState& state = events_.at(event.index, "synchronize");
    if (!state.recorded) return;
    handle = state.handle;
  }
  const Current current(context_);
  require(api_.event_synchronize(handle), "cuEventSynchronize", {who});
  require_sound("synchronize");
}

// --- flags ---

Flag CudaBackend::create_flag() {
  const Lock lock(mutex_);
  require_sound("create_flag");
  const Current current(context_);
  const FlagState words = words_.take();
  try {
    const Flag flag{flags_.create()};
    flags_.at(flag.index, "create_flag") = words;
    return flag;
  } catch (...) {
    words_.give_back(words);
    throw;
  }
}

void CudaBackend::destroy_flag(Flag flag) noexcept {
  const Lock lock(mutex_);
  FlagState* state = flags_.find(flag.index);
  if (state == nullptr) return;
  const std::uint32_t value = std::atomic_ref<std::uint32_t>(*state->word).load();
  if (state->was_awaited && static_cast<std::int32_t>(value - state->awaited) < 0 && !lost()) {
    lose("destroy_flag while a stream waits for it");
    std::atomic_ref<std::uint32_t>(*state->word).store(state->awaited);  // lets the stream end
  }
  words_.give_back(*state);
  (void)flags_.destroy(flag.index);
}

void CudaBackend::wait_flag(NativeStream stream, Flag flag, std::uint32_t value) {
  const Lock lock(mutex_);
  require_sound("wait_flag");
  FlagState& state = flags_.at(flag.index, "wait_flag");
  const Current current(context_);
  CUstream on = stream_of(stream, "wait_flag");
  require(api_.stream_wait_value(on, state.address, value, CU_STREAM_WAIT_VALUE_GEQ),
          "cuStreamWaitValue32_v2");
  state.awaited = value;
  state.was_awaited = true;
}

/// The release makes what the host wrote before visible to a copy that the stream starts after.
void CudaBackend::write_flag(Flag flag, std::uint32_t value) noexcept {
  const Lock lock(mutex_);
  if (lost()) return;
  FlagState* state = flags_.find(flag.index);
  if (state == nullptr) return lose("write_flag: no live flag of this device has this handle");
  std::atomic_ref<std::uint32_t>(*state->word).store(value, std::memory_order_release);
}

}  // namespace outboard::device::cuda
