// SPDX-License-Identifier: Apache-2.0
// What orders operations: events, notifications, host waits, flags, and the queues they act on.
#include <algorithm>
#include <utility>

#include "device/sim/sim_backend.hpp"
#include "outboard/error.hpp"

namespace outboard::sim {
namespace {

bool later(const Arrival& a, const Arrival& b) {
  return a.position > b.position;
}

}  // namespace

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
  push(stream, {.work = Record{event.index}, .failing_call = failing});
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

void SimBackend::finish_for_caller(NativeStream stream) {
  if (stream.value == 0 && caller_.value != 0) synchronize_stream(stream);
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
  const device::Flag flag{flags_.create()};
  // One stream waits for a flag; growing only then would allocate during a step.
  flags_.at(flag.index, "create_flag").waiting.reserve(4);
  return flag;
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
  note_time(stream);
  auto& arrivals = stream.arrivals;
  while (!arrivals.empty() && arrivals.front().position <= stream.completed && !lost()) {
    std::pop_heap(arrivals.begin(), arrivals.end(), later);
    const Arrival arrival = arrivals.back();
    arrivals.pop_back();
    arrive(stream, arrival);
  }
}

/// If it is an event's last record that the stream has completed.
void SimBackend::note_time(const Stream& stream) noexcept {
  const auto* record = std::get_if<Record>(&stream.current.work);
  EventState* event = record == nullptr ? nullptr : events_.find(record->event);
  if (event == nullptr) return;
  if (event->stream == stream.number && event->position == stream.completed) {
    event->completed_ns = now_ns();
  }
}

std::int64_t SimBackend::completed_ns(device::Event event) const {
  const EventState& state = events_.at(event.index, "elapsed_us");
  if (state.position != 0 && streams_[state.stream]->completed >= state.position) {
    return state.completed_ns;
  }
  throw Error(ErrorCode::invalid_argument,
              std::string("elapsed_us: an event ") +
                  (state.position == 0 ? "was never recorded" : "is not reached yet"));
}

double SimBackend::elapsed_us(device::Event from, device::Event to) const {
  const Lock lock(mutex_);
  require_sound("elapsed_us");
  return static_cast<double>(completed_ns(to) - completed_ns(from)) * 1e-3;
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

}  // namespace outboard::sim
