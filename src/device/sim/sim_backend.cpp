// SPDX-License-Identifier: Apache-2.0
// Life of the device, its streams, events and flags; waiting; losing it.
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

bool later(const Arrival& a, const Arrival& b) {
  return a.position > b.position;
}

}  // namespace

SimBackend::SimBackend(const Options& options, std::unique_ptr<core::Waiter> waiter)
    : options_(options),
      memory_(options.memory_bytes, options.mode == Mode::virtual_time),
      tag_(next_tag()),
      waiter_(std::move(waiter)),
      faults_(options.faults),
      events_(tag_, "event"),
      flags_(tag_, "flag") {}

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
    streams_.back()->number = static_cast<std::uint32_t>(streams_.size() - 1);
    unused_streams_.push_back(streams_.back()->number);
  }
  Stream& stream = *streams_[unused_streams_.back()];
  unused_streams_.pop_back();
  return stream;
}

NativeStream SimBackend::create_stream(const char* name) {
  const Lock lock(mutex_);
  require_sound("create_stream");
  const std::uint64_t failing = faults_.next(Call::create_stream);
  Stream& stream = unused_stream();
  stream.name = name;
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

// --- events ---

device::Event SimBackend::create_event() {
  const Lock lock(mutex_);
  require_sound("create_event");
  const std::uint64_t failing = faults_.next(Call::create_event);
  const device::Event event{events_.create()};
  lose_if_failing(Call::create_event, failing);
  return event;
}

void SimBackend::destroy_event(device::Event event) noexcept {
  const Lock lock(mutex_);
  (void)events_.destroy(event.index);
}

void SimBackend::record(device::Event event, NativeStream handle) {
  const Lock lock(mutex_);
  require_sound("record");
  EventState& state = events_.at(event.index, "record");
  Stream& stream = stream_at(handle, "record");
  const std::uint64_t failing = faults_.next(Call::record);
  state = {.stream = stream.number, .position = stream.queued + 1};
  push(stream, {.work = Record{}, .failing_call = failing});
}

void SimBackend::wait_event(NativeStream handle, device::Event event) {
  const Lock lock(mutex_);
  require_sound("wait_event");
  const EventState state = events_.at(event.index, "wait_event");
  Stream& stream = stream_at(handle, "wait_event");
  const std::uint64_t failing = faults_.next(Call::wait_event);
  push(stream, {.work = WaitPoint{state.stream, state.position}, .failing_call = failing});
}

bool SimBackend::reached(device::Event event) const {
  const Lock lock(mutex_);
  require_sound("reached");
  const EventState state = events_.at(event.index, "reached");
  return state.position == 0 || streams_[state.stream]->completed >= state.position;
}

void SimBackend::notify(device::Event event, core::Callback callback) {
  const Lock lock(mutex_);
  require_sound("notify");
  const EventState state = events_.at(event.index, "notify");
  if (!callback) throw Error(ErrorCode::invalid_argument, "notify: the callback is null");
  const Arrival arrival{.position = state.position,
                        .kind = Arrival::Kind::callback,
                        .callback = callback,
                        .failing_call = faults_.next(Call::notify)};
  Stream* stream = state.position == 0 ? nullptr : streams_[state.stream].get();
  if (stream != nullptr && stream->completed < state.position) {
    add_arrival(*stream, arrival);
  } else if (arrival.failing_call != 0) {
    lose_if_failing(Call::notify, arrival.failing_call);
  } else {
    if (stream != nullptr) ++stream->delivering;
    deliver_apart(stream, callback);
  }
}

void SimBackend::synchronize(device::Event event, const char* who) {
  Lock lock(mutex_);
  require_sound("synchronize");
  const EventState state = events_.at(event.index, "synchronize");
  ++counters_.host_waits;
  if (state.position == 0) return;
  wait_for(lock, *streams_[state.stream], state.position, who);
}

void SimBackend::synchronize_stream(NativeStream handle) {
  Lock lock(mutex_);
  require_sound("synchronize");
  Stream& stream = stream_at(handle, "synchronize");
  ++counters_.host_waits;
  wait_for(lock, stream, stream.queued, "the trainer waits for a stream");
}

void SimBackend::synchronize_all() {
  Lock lock(mutex_);
  require_sound("synchronize");
  ++counters_.host_waits;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = *streams_[i];
    if (stream.live) wait_for(lock, stream, stream.queued, "the trainer waits for all streams");
  }
}

void SimBackend::wait_for(Lock& lock, Stream& stream, std::uint64_t position, const char* who) {
  if (stream.completed < position) {
    add_arrival(stream, {.position = position});
    waiter_->wait(
        lock, [&] { return stream.completed >= position || lost(); }, who);
  }
  require_sound("synchronize");
}

// --- flags ---

device::Flag SimBackend::create_flag() {
  const Lock lock(mutex_);
  require_sound("create_flag");
  if (!options_.stream_memory_ops) {
    throw Error(ErrorCode::unsupported, "create_flag: sim::Options::stream_memory_ops is false");
  }
  return {flags_.create()};
}

void SimBackend::destroy_flag(device::Flag flag) noexcept {
  const Lock lock(mutex_);
  FlagState* state = flags_.find(flag.index);
  if (state == nullptr) return;
  if (!state->waiting.empty() && !lost()) {
    lose("destroy_flag while " + describe(*streams_[state->waiting.front()]) + " waits for it");
  }
  (void)flags_.destroy(flag.index);
}

void SimBackend::wait_flag(NativeStream handle, device::Flag flag, std::uint32_t value) {
  const Lock lock(mutex_);
  require_sound("wait_flag");
  (void)flags_.at(flag.index, "wait_flag");
  Stream& stream = stream_at(handle, "wait_flag");
  const std::uint64_t failing = faults_.next(Call::wait_flag);
  push(stream, {.work = WaitFlag{flag.index, value}, .failing_call = failing});
}

void SimBackend::write_flag(device::Flag flag, std::uint32_t value) noexcept {
  const Lock lock(mutex_);
  if (lost()) return;
  FlagState* state = flags_.find(flag.index);
  if (state == nullptr) return lose("write_flag: no live flag of this device has this handle");
  const std::uint64_t failing = faults_.next_without_throw(Call::write_flag);
  if (failing != 0) return lose(injected_failure(Call::write_flag, failing));
  state->value = value;
  std::erase_if(state->waiting, [&](std::uint32_t number) {
    Stream& stream = *streams_[number];
    if (!satisfied(stream.current.work)) return false;
    kick(stream);
    return true;
  });
}

// --- queues ---

void SimBackend::push(Stream& stream, Operation operation) {
  if (stream.closing) {
    throw Error(ErrorCode::invalid_argument, std::string(to_string(call_of(operation.work))) +
                                                 ": stream '" + stream.name +
                                                 "' is being destroyed");
  }
  stream.queue.push(std::move(operation));
  ++stream.queued;
  kick(stream);
}

void SimBackend::add_arrival(Stream& stream, const Arrival& arrival) {
  stream.arrivals.push_back(arrival);
  std::push_heap(stream.arrivals.begin(), stream.arrivals.end(), later);
}

bool SimBackend::satisfied(const Work& wait) const {
  if (const auto* point = std::get_if<WaitPoint>(&wait)) {
    return point->position == 0 || streams_[point->stream]->completed >= point->position;
  }
  if (const auto* flag_wait = std::get_if<WaitFlag>(&wait)) {
    const FlagState* flag = flags_.find(flag_wait->flag);
    return flag != nullptr && static_cast<std::int32_t>(flag->value - flag_wait->value) >= 0;
  }
  return true;
}

void SimBackend::subscribe(Stream& stream) {
  if (const auto* point = std::get_if<WaitPoint>(&stream.current.work)) {
    add_arrival(
        *streams_[point->stream],
        {.position = point->position, .kind = Arrival::Kind::stream, .stream = stream.number});
  } else if (const auto* flag_wait = std::get_if<WaitFlag>(&stream.current.work)) {
    FlagState* flag = flags_.find(flag_wait->flag);
    if (flag == nullptr) return lose(describe(stream) + ": its flag was destroyed before it ran");
    flag->waiting.push_back(stream.number);
  }
}

void SimBackend::complete(Stream& stream) {
  if (const auto* down = std::get_if<CopyToHost>(&stream.current.work)) {
    ++counters_.copies_to_host;
    counters_.bytes_to_host += down->dst.size();
  } else if (const auto* up = std::get_if<CopyToDevice>(&stream.current.work)) {
    ++counters_.copies_to_device;
    counters_.bytes_to_device += up->src.size();
  }
  ++stream.completed;
  stream.busy = false;
  auto& arrivals = stream.arrivals;
  while (!arrivals.empty() && arrivals.front().position <= stream.completed && !lost()) {
    std::pop_heap(arrivals.begin(), arrivals.end(), later);
    const Arrival arrival = arrivals.back();
    arrivals.pop_back();
    arrive(stream, arrival);
  }
}

void SimBackend::arrive(Stream& stream, const Arrival& arrival) {
  switch (arrival.kind) {
    case Arrival::Kind::stream:
      kick(*streams_[arrival.stream]);
      break;
    case Arrival::Kind::host:
      waiter_->wake();
      break;
    case Arrival::Kind::callback:
      if (arrival.failing_call != 0) return lose_if_failing(Call::notify, arrival.failing_call);
      ++stream.delivering;
      deliver(stream, arrival.callback);
      break;
  }
}

void SimBackend::delivered(Stream* stream) noexcept {
  if (stream != nullptr && --stream->delivering == 0 && stream->closing) waiter_->wake();
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
