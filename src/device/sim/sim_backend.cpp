// SPDX-License-Identifier: Apache-2.0
// Life of the device and its streams; losing it; saying what is blocked.
#include "device/sim/sim_backend.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "outboard/error.hpp"

namespace outboard::sim {
namespace {

std::uint32_t next_tag() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

}  // namespace

SimBackend::SimBackend(const Options& options, DeviceMemory::Kind memory,
                       std::unique_ptr<core::Waiter> waiter, std::int64_t origin_ns)
    : options_(options),
      memory_(options.memory_bytes, memory),
      tag_(next_tag()),
      recorder_(origin_ns),
      waiter_(std::move(waiter)),
      faults_(options.faults),
      events_(tag_, "event"),
      flags_(tag_, "flag") {
  waiter_->record_to(&recorder_);
}

void SimBackend::record_span(const Stream& stream, const core::RecordedTime& time) noexcept {
  if (!recorder_.on() || engine_of(stream.current.work) == Engine::none) return;
  core::RecordedSpan span = span_of(stream.current.work);
  span.stream = stream.name;
  recorder_.add(span, time);
}

double SimBackend::host_elems_per_s(std::uint32_t node) const noexcept {
  const auto& rates = options_.rates.host_elems_per_s;
  return rates.empty() ? 0.0 : rates[std::min<std::size_t>(node, rates.size() - 1)];
}

Counters SimBackend::counters() const {
  const Lock lock(mutex_);
  Counters counters = counters_;
  counters.live_allocations = memory_.live();
  counters.live_streams = streams_.size() - unused_streams_.size();
  counters.live_events = events_.live();
  counters.live_registrations = registered_.size();
  return counters;
}

// --- losing the device ---

std::string SimBackend::lost_reason() const {
  const Lock lock(mutex_);
  return lost_reason_;
}

void SimBackend::require_sound(const char* call) const {
  if (!lost()) return;
  throw Error(ErrorCode::device_failure,
              std::string(call) + ": the device was lost by " + lost_reason_);
}

void SimBackend::lose(const std::string& reason) noexcept {
  if (lost()) return;
  lost_reason_ = reason;
  lost_.store(true, std::memory_order_release);
  on_lost();
  waiter_->wake();
}

void SimBackend::lose_if_failing(Call call, std::uint64_t number) noexcept {
  if (number != 0) lose(injected_failure(call, number));
}

// --- streams ---

NativeStream SimBackend::handle_of(const Stream& stream) const noexcept {
  return {(static_cast<std::uint64_t>(tag_) << 32) |
          (static_cast<std::uint64_t>(stream.generation & 0xFFFFu) << 16) | stream.number};
}

Stream& SimBackend::stream_at(NativeStream handle, const char* call) const {
  if (handle.value == 0) handle = caller_;
  const std::size_t number = handle.value & 0xFFFFu;
  if (number < streams_.size() && streams_[number]->live &&
      handle_of(*streams_[number]) == handle) {
    return *streams_[number];
  }
  const bool ours = handle.value >> 32 == tag_;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + ": stream " + std::to_string(handle.value) +
                  (ours ? " of this device has been destroyed" : " is not one of this device"));
}

Stream& SimBackend::unused_stream() {
  if (unused_streams_.empty()) {
    if (streams_.size() > 0xFFFF) {
      throw Error(ErrorCode::out_of_memory, "create_stream: 65536 streams are live");
    }
    unused_streams_.reserve(streams_.size() + 1);  // so that destroy_stream() never allocates
    streams_.push_back(make_stream());
    streams_.back()->arrivals.reserve(256);  // how many come at once is a matter of timing
    streams_.back()->number = static_cast<std::uint32_t>(streams_.size() - 1);
    unused_streams_.push_back(streams_.back()->number);
  }
  Stream& stream = *streams_[unused_streams_.back()];
  unused_streams_.pop_back();
  return stream;
}

NativeStream SimBackend::create_stream(const char* name, bool urgent) {
  const Lock lock(mutex_);
  require_sound("create_stream");
  const std::uint64_t failing = faults_.next(Call::create_stream);
  Stream& stream = unused_stream();
  stream.name = name;
  stream.urgent = urgent;
  stream.live = true;
  stream.closing = false;
  start(stream);
  lose_if_failing(Call::create_stream, failing);
  return handle_of(stream);
}

void SimBackend::destroy_stream(NativeStream handle) noexcept {
  Stream* stream = nullptr;
  {
    const Lock lock(mutex_);
    const std::size_t number = handle.value & 0xFFFFu;
    if (number >= streams_.size()) return;
    stream = streams_[number].get();
    if (!stream->live || stream->closing || handle_of(*stream) != handle) return;
    stream->closing = true;
  }
  wait_drained(*stream);
  stop(*stream);
  stream->queue.clear();  // without the mutex: kernels of the trainer end here
  stream->current = {};
  const Lock lock(mutex_);
  stream->busy = false;
  stream->live = false;
  stream->arrivals.clear();
  ++stream->generation;
  unused_streams_.push_back(stream->number);
}

void SimBackend::wait_drained(Stream& stream) noexcept {
  Lock lock(mutex_);
  try {
    if (!stream.drained() && !lost()) {
      add_arrival(stream, {.position = stream.queued});
      waiter_->wait(
          lock, [&] { return stream.drained() || lost(); }, "destroy_stream waits for its stream");
    }
  } catch (const std::exception& error) {
    // A deadlock of virtual time. Work that nothing can ever start must not hang a destructor,
    // but it must not vanish unseen either.
    lose(std::string("destroy_stream of stream '") + stream.name + "': " + error.what());
  }
}

std::string SimBackend::describe(const Stream& stream) const {
  return std::string(name_of(stream.current.work)) + " on stream '" + stream.name + "'";
}

std::string SimBackend::describe_wait(const Work& wait) const {
  if (const auto* point = std::get_if<WaitPoint>(&wait)) {
    const Stream& other = *streams_[point->stream];
    return "operation " + std::to_string(point->position) + " of stream '" + other.name +
           "', which has completed " + std::to_string(other.completed);
  }
  if (const auto* flag_wait = std::get_if<WaitFlag>(&wait)) {
    const FlagState* flag = flags_.find(flag_wait->flag);
    return "flag " + std::to_string(flag_wait->flag & 0xFFFFFu) + " to reach " +
           std::to_string(flag_wait->value) + ", which is " +
           (flag == nullptr ? std::string("destroyed") : std::to_string(flag->value));
  }
  return "its engine";
}

}  // namespace outboard::sim
