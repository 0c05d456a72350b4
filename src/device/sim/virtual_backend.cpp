// SPDX-License-Identifier: Apache-2.0
// The software GPU in virtual time: every operation is a few events of one loop, and the seed
// chooses wherever the order is not promised.
#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <utility>

#include "device/sim/sim_backend.hpp"
#include "outboard/error.hpp"

namespace outboard::sim {
namespace {

enum class Phase : std::uint8_t { blocked, for_engine, running };

struct VirtualStream final : Stream {
  Phase phase = Phase::blocked;
  bool early = false;  // takes effect (a copy: reads) at the start of its time
  bool holds_engine = false;
  core::VirtualTime ready_at = 0;    // since when its head wants an engine
  core::VirtualTime start_ns = 0;    // of what runs
  std::vector<std::byte> in_flight;  // what a copy has read and not yet written
};

struct EngineState {
  bool busy = false;
  bool dispatching = false;
  std::vector<std::uint32_t> ready;  // numbers of streams whose heads want it, oldest first
};

struct Pending {
  Stream* stream = nullptr;
  core::Callback callback;
};

/// The two ends of a copy as the host sees them.
struct CopyEnds {
  void* dst;
  const void* src;
  std::size_t bytes;
};

class VirtualBackend final : public SimBackend {
 public:
  /// `loop` is this backend's own; a base class needs it first, hence from outside.
  VirtualBackend(const Options& options, std::unique_ptr<core::VirtualLoop> loop)
      : SimBackend(options, DeviceMemory::Kind::poisoned, core::make_virtual_waiter(*loop), 0),
        loop_(std::move(loop)) {
    // How many are due at once varies with the seed.
    for (EngineState& engine : engines_) engine.ready.reserve(256);
    pending_.reserve(1024);
    free_pending_.reserve(1024);
    reporter_ = loop_->add_reporter([this](std::string& text) { report(text); });
  }
  ~VirtualBackend() override;

  [[nodiscard]] core::VirtualLoop* virtual_loop() noexcept override { return loop_.get(); }
  [[nodiscard]] std::int64_t now_ns() const noexcept override { return loop_->now(); }

 private:
  using Lock = std::unique_lock<std::mutex>;

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<VirtualStream>(); }
  void start(Stream& /*stream*/) override {}
  void stop(Stream& /*stream*/) noexcept override {}
  void kick(Stream& stream) override;
  void deliver(Stream& stream, const core::Callback& callback) override {
    deliver_apart(&stream, callback);
  }
  void deliver_apart(Stream* stream, const core::Callback& callback) override;
  void on_lost() noexcept override;

  static VirtualStream& own(Stream& stream) { return static_cast<VirtualStream&>(stream); }
  void take_head(VirtualStream& stream);
  void want_engine(VirtualStream& stream);
  void schedule_dispatch(std::size_t engine);
  [[nodiscard]] std::size_t choices(const EngineState& state) const;
  [[nodiscard]] std::size_t draw(const EngineState& state);
  void dispatch(std::size_t engine);
  void run_beside(std::size_t number);
  void run_head(VirtualStream& stream);
  void finish(VirtualStream& stream);
  void call_back(std::size_t slot);

  /// nullopt: not a copy. @throws Error{invalid_argument} for memory released meanwhile.
  [[nodiscard]] std::optional<CopyEnds> copy_ends(const Work& work) const;
  void poison_destination(VirtualStream& stream);
  void begin_effect(VirtualStream& stream);
  void end_effect(VirtualStream& stream);
  template <class Body>
  void guarded(VirtualStream& stream, Body body);
  [[nodiscard]] bool delays() const { return options_.max_random_delay.count() > 0; }
  core::VirtualTime random_delay();
  [[nodiscard]] bool all_drained() const;
  void report(std::string& text) const;

  template <void (VirtualBackend::*kMember)(std::size_t)>
  core::Callback later(std::size_t argument) {
    return {[](void* self, std::uint64_t value) noexcept {
              (static_cast<VirtualBackend*>(self)->*kMember)(value);
            },
            this, argument};
  }
  void finish_number(std::size_t number) { finish(own(*streams_[number])); }

  std::unique_ptr<core::VirtualLoop> loop_;
  std::uint64_t reporter_ = 0;
  std::array<EngineState, kEngines> engines_;
  std::vector<Pending> pending_;  // callbacks due; the loop's events carry their index
  std::vector<std::size_t> free_pending_;
};

VirtualBackend::~VirtualBackend() {
  while (!lost() && !all_drained() && loop_->run_one()) {
  }
  loop_->remove_reporter(reporter_);
}

bool VirtualBackend::all_drained() const {
  return std::ranges::all_of(streams_, [](const auto& stream) { return stream->drained(); });
}

core::VirtualTime VirtualBackend::random_delay() {
  const auto most = static_cast<std::uint64_t>(options_.max_random_delay.count());
  return most == 0 ? 0 : static_cast<core::VirtualTime>(loop_->random_below(most + 1));
}

// --- from the head of a stream to its engine ---

void VirtualBackend::kick(Stream& stream) {
  if (lost()) return;
  VirtualStream& mine = own(stream);
  if (!mine.busy) {
    if (!mine.queue.empty()) take_head(mine);
  } else if (mine.phase == Phase::blocked && satisfied(mine.current.work)) {
    mine.phase = Phase::running;
    loop_->after(random_delay(), later<&VirtualBackend::finish_number>(mine.number));
  }
}

void VirtualBackend::take_head(VirtualStream& stream) {
  stream.current = stream.queue.pop();
  stream.busy = true;
  const Engine engine = engine_of(stream.current.work);
  if (engine == Engine::compute && stream.current.duration_ns == 0) {
    // It takes none of the engine's time, so it waits for nobody's either.
    stream.phase = Phase::running;
    guarded(stream, [&] { poison_destination(stream); });
    if (!lost()) loop_->after(0, later<&VirtualBackend::run_beside>(stream.number));
  } else if (engine != Engine::none) {
    want_engine(stream);
  } else if (satisfied(stream.current.work)) {
    stream.phase = Phase::running;
    loop_->after(random_delay(), later<&VirtualBackend::finish_number>(stream.number));
  } else {
    stream.phase = Phase::blocked;
    subscribe(stream);
  }
}

void VirtualBackend::want_engine(VirtualStream& stream) {
  stream.phase = Phase::for_engine;
  guarded(stream, [&] { poison_destination(stream); });
  if (lost()) return;
  const auto engine = static_cast<std::size_t>(engine_of(stream.current.work));
  stream.ready_at = loop_->now();
  engines_[engine].ready.push_back(stream.number);
  schedule_dispatch(engine);
}

// By way of the loop, so that all heads that become ready at this moment take part in the draw.
void VirtualBackend::schedule_dispatch(std::size_t engine) {
  EngineState& state = engines_[engine];
  if (state.busy || state.dispatching || state.ready.empty()) return;
  state.dispatching = true;
  const core::Callback dispatch = later<&VirtualBackend::dispatch>(engine);
  delays() ? loop_->after(0, dispatch) : loop_->after_this_moment(dispatch);
}

/// How many of the oldest heads the draw is among. Engines serve in turn, but for injected delays.
std::size_t VirtualBackend::choices(const EngineState& state) const {
  if (delays()) return state.ready.size();
  const auto since = [&](std::uint32_t number) { return own(*streams_[number]).ready_at; };
  const core::VirtualTime oldest = since(state.ready.front());
  const auto later = [&](std::uint32_t number) { return since(number) != oldest; };
  return static_cast<std::size_t>(std::ranges::find_if(state.ready, later) - state.ready.begin());
}

/// Where delays are injected anything may go first that is legal, whatever is urgent.
std::size_t VirtualBackend::draw(const EngineState& state) {
  const std::size_t count = choices(state);
  const auto heads = std::span(state.ready).first(count);
  const auto urgent = [&](std::uint32_t number) { return streams_[number]->urgent; };
  const auto among = static_cast<std::uint64_t>(std::ranges::count_if(heads, urgent));
  if (among == 0 || delays()) return loop_->random_below(count);
  std::uint64_t left = loop_->random_below(among);
  std::size_t choice = 0;
  while (!urgent(heads[choice]) || left-- > 0) ++choice;
  return choice;
}

void VirtualBackend::dispatch(std::size_t engine) {
  Lock lock(mutex_);
  EngineState& state = engines_[engine];
  state.dispatching = false;
  if (lost()) return;
  const std::size_t choice = draw(state);
  VirtualStream& stream = own(*streams_[state.ready[choice]]);
  state.ready.erase(state.ready.begin() + static_cast<std::ptrdiff_t>(choice));
  state.busy = true;
  stream.holds_engine = true;
  lock.unlock();
  run_head(stream);
}

void VirtualBackend::run_beside(std::size_t number) {
  if (!lost()) run_head(own(*streams_[number]));
}

void VirtualBackend::run_head(VirtualStream& stream) {
  stream.phase = Phase::running;
  stream.start_ns = loop_->now();
  stream.early = loop_->random_below(2) == 0;
  loop_->after(stream.current.duration_ns + random_delay(),
               later<&VirtualBackend::finish_number>(stream.number));
  if (stream.early) guarded(stream, [&] { begin_effect(stream); });
}

void VirtualBackend::finish(VirtualStream& stream) {
  if (lost()) return;
  guarded(stream, [&] { end_effect(stream); });
  record_span(stream, {stream.start_ns, loop_->now()});
  if (auto* kernel = std::get_if<TrainerKernel>(&stream.current.work)) kernel->body = nullptr;
  const Lock lock(mutex_);
  if (lost()) return;
  const auto engine = static_cast<std::size_t>(engine_of(stream.current.work));
  const bool held = std::exchange(stream.holds_engine, false);
  if (held) engines_[engine].busy = false;
  complete(stream);
  kick(stream);
  if (held) schedule_dispatch(engine);
}

// --- effects ---

std::optional<CopyEnds> VirtualBackend::copy_ends(const Work& work) const {
  if (const auto* down = std::get_if<CopyToHost>(&work)) {
    const std::size_t bytes = down->dst.size();
    return CopyEnds{down->dst.data(), memory_.alias(down->src, bytes), bytes};
  }
  if (const auto* up = std::get_if<CopyToDevice>(&work)) {
    const std::size_t bytes = up->src.size();
    return CopyEnds{memory_.alias(up->dst, bytes), up->src.data(), bytes};
  }
  if (const auto* on = std::get_if<CopyOnDevice>(&work)) {
    return CopyEnds{memory_.alias(on->dst, on->bytes), memory_.alias(on->src, on->bytes),
                    on->bytes};
  }
  return std::nullopt;
}

// From now on until the copy's end its destination has no promised contents. NaN shows a reader
// that did not wait.
void VirtualBackend::poison_destination(VirtualStream& stream) {
  const auto ends = copy_ends(stream.current.work);
  if (ends && ends->bytes > 0) std::memset(ends->dst, 0xFF, ends->bytes);
}

void VirtualBackend::begin_effect(VirtualStream& stream) {
  const Work& work = stream.current.work;
  if (stream.current.failing_call != 0) return;
  if (const auto ends = copy_ends(work)) {
    const auto* source = static_cast<const std::byte*>(ends->src);
    stream.in_flight.assign(source, source + ends->bytes);
  } else {
    run(work, memory_);
  }
}

void VirtualBackend::end_effect(VirtualStream& stream) {
  const Operation& operation = stream.current;
  if (operation.failing_call != 0) {
    throw Error(ErrorCode::device_failure,
                injected_failure(call_of(operation.work), operation.failing_call));
  }
  if (engine_of(operation.work) == Engine::none) return;
  if (!stream.early) begin_effect(stream);
  const auto ends = copy_ends(operation.work);
  if (ends && ends->bytes > 0) std::memcpy(ends->dst, stream.in_flight.data(), ends->bytes);
}

// An exception of `body` loses the device. With or without the mutex: there is one thread.
template <class Body>
void VirtualBackend::guarded(VirtualStream& stream, Body body) {
  try {
    body();
  } catch (const std::exception& error) {
    lose(std::string(error.what()) + ", in " + describe(stream));
  } catch (...) {
    lose("an exception of unknown type, in " + describe(stream));
  }
}

// --- callbacks ---

void VirtualBackend::deliver_apart(Stream* stream, const core::Callback& callback) {
  if (free_pending_.empty()) {
    pending_.emplace_back();
    free_pending_.push_back(pending_.size() - 1);
  }
  const std::size_t slot = free_pending_.back();
  free_pending_.pop_back();
  pending_[slot] = {stream, callback};
  loop_->after(0, later<&VirtualBackend::call_back>(slot));
}

void VirtualBackend::call_back(std::size_t slot) {
  core::Callback callback;
  {
    const Lock lock(mutex_);
    free_pending_.push_back(slot);
    if (lost()) return;
    delivered(pending_[slot].stream);
    callback = pending_[slot].callback;
  }
  callback();
}

void VirtualBackend::on_lost() noexcept {
  for (const auto& stream : streams_) stream->delivering = 0;
}

// --- what is blocked ---

void VirtualBackend::report(std::string& text) const {
  const Lock lock(mutex_);
  if (lost()) text += "the device was lost by " + lost_reason_ + "\n";
  for (const auto& stream : streams_) {
    if (stream->completed == stream->queued) continue;
    text += "stream '" + stream->name + "' (" + std::to_string(stream->queued - stream->completed) +
            " operations left): " + name_of(stream->current.work) + " waits for " +
            describe_wait(stream->current.work) + "\n";
  }
}

}  // namespace

std::shared_ptr<device::Backend> make_virtual_backend(const Options& options) {
  return std::make_shared<VirtualBackend>(options,
                                          std::make_unique<core::VirtualLoop>(options.seed));
}

}  // namespace outboard::sim
