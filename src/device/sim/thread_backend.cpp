// SPDX-License-Identifier: Apache-2.0
// The software GPU in real time: one thread runs each stream, one more calls back for events that
// were already reached when somebody asked.
#include <unistd.h>

#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "device/sim/sim_backend.hpp"
#include "outboard/error.hpp"

namespace outboard::sim {
namespace {

using Clock = std::chrono::steady_clock;

// How many callbacks one operation's end sets off depends on who is late; growing only then would
// allocate during a step.
constexpr std::size_t kCallbacksAtOnce = 64;

struct ThreadStream final : Stream {
  ThreadStream() {
    due.reserve(kCallbacksAtOnce);
    delivering_now.reserve(kCallbacksAtOnce);
  }

  std::condition_variable changed;
  std::thread thread;
  bool stopping = false;
  std::vector<core::Callback> due;
  std::vector<core::Callback> delivering_now;  // the thread's own: swapped with `due`
};

class ThreadBackend final : public SimBackend {
 public:
  ThreadBackend(const Options& options, DeviceMemory::Kind memory)
      : ThreadBackend(options, memory, Clock::now()) {}
  ~ThreadBackend() override;

  [[nodiscard]] core::VirtualLoop* virtual_loop() noexcept override { return nullptr; }
  [[nodiscard]] std::int64_t now_ns() const noexcept override {
    return std::chrono::nanoseconds(Clock::now() - start_).count();
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  ThreadBackend(const Options& options, DeviceMemory::Kind memory, Clock::time_point start)
      : SimBackend(options, memory, core::make_thread_waiter(), ns_of(start)),
        start_(start),
        apart_thread_([this] { run_apart(); }) {}
  static std::int64_t ns_of(Clock::time_point time) noexcept {
    return std::chrono::nanoseconds(time.time_since_epoch()).count();
  }

  struct Apart {
    Stream* stream = nullptr;
    core::Callback callback;
  };

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<ThreadStream>(); }
  void start(Stream& stream) override;
  void stop(Stream& stream) noexcept override;
  void kick(Stream& stream) override { own(stream).changed.notify_one(); }
  void deliver(Stream& stream, const core::Callback& callback) override {
    own(stream).due.push_back(callback);
  }
  void deliver_apart(Stream* stream, const core::Callback& callback) override;
  void on_lost() noexcept override;

  static ThreadStream& own(Stream& stream) { return static_cast<ThreadStream&>(stream); }
  void run_stream(ThreadStream& stream) noexcept;
  bool take_next(Lock& lock, ThreadStream& stream);
  bool await_head(Lock& lock, ThreadStream& stream);
  void run_current(Lock& lock, ThreadStream& stream);
  void run_timed(ThreadStream& stream);
  void run_untimed(ThreadStream& stream);
  void sleep_until(ThreadStream& stream, Clock::time_point deadline);
  void deliver_due(Lock& lock, ThreadStream& stream);
  void run_apart() noexcept;

  const Clock::time_point start_;
  std::array<std::mutex, kEngines> engines_;
  bool closing_ = false;
  std::condition_variable apart_changed_;
  std::condition_variable apart_returned_;
  Ring<Apart> apart_;
  std::thread apart_thread_;  // last: it uses all of the above
};

ThreadBackend::~ThreadBackend() {
  {
    const Lock lock(mutex_);
    closing_ = true;
    for (const auto& stream : streams_) own(*stream).changed.notify_one();
  }
  for (const auto& stream : streams_) {
    if (stream->live) stop(*stream);
  }
  {
    const Lock lock(mutex_);
    apart_changed_.notify_one();
  }
  apart_thread_.join();
}

void ThreadBackend::start(Stream& stream) {
  ThreadStream& mine = own(stream);
  mine.stopping = false;
  mine.thread = std::thread([this, &mine] { run_stream(mine); });
}

void ThreadBackend::stop(Stream& stream) noexcept {
  ThreadStream& mine = own(stream);
  {
    const Lock lock(mutex_);
    mine.stopping = true;
    mine.changed.notify_one();
  }
  mine.thread.join();
  Lock lock(mutex_);
  mine.delivering -= mine.due.size();  // left over only by a lost device: never called
  mine.due.clear();
  apart_returned_.wait(lock, [&] { return mine.delivering == 0; });
}

void ThreadBackend::on_lost() noexcept {
  for (const auto& stream : streams_) own(*stream).changed.notify_one();
  apart_changed_.notify_one();
}

// --- the thread of a stream ---

void ThreadBackend::run_stream(ThreadStream& stream) noexcept {
  std::fesetenv(FE_DFL_ENV);  // a thread inherits its maker's rounding and flush-to-zero modes
  Lock lock(mutex_);
  while (take_next(lock, stream) && await_head(lock, stream)) {
    run_current(lock, stream);
    deliver_due(lock, stream);
  }
}

bool ThreadBackend::take_next(Lock& lock, ThreadStream& stream) {
  stream.changed.wait(lock, [&] { return lost() || stream.stopping || !stream.queue.empty(); });
  if (lost() || stream.queue.empty()) return false;
  stream.current = stream.queue.pop();  // a local place: the ring may grow while it runs
  stream.busy = true;
  return true;
}

bool ThreadBackend::await_head(Lock& lock, ThreadStream& stream) {
  const Work& work = stream.current.work;
  if (satisfied(work)) return true;
  subscribe(stream);
  const bool on_flag = std::holds_alternative<WaitFlag>(work);
  stream.changed.wait(lock, [&] { return lost() || satisfied(work) || (closing_ && on_flag); });
  // Nobody is left who could write the flag.
  if (!lost() && !satisfied(work)) lose("destruction while " + describe(stream) + " waits");
  return !lost();
}

void ThreadBackend::run_current(Lock& lock, ThreadStream& stream) {
  std::string failure;
  lock.unlock();
  try {
    if (stream.current.failing_call != 0) {
      failure = injected_failure(call_of(stream.current.work), stream.current.failing_call);
    } else {
      run_timed(stream);
    }
  } catch (const std::exception& error) {
    failure = error.what();
  } catch (...) {
    failure = "an exception of unknown type";
  }
  // What the trainer's kernel captured ends before the mutex is taken, and before it counts as
  // done.
  if (auto* kernel = std::get_if<TrainerKernel>(&stream.current.work)) kernel->body = nullptr;
  lock.lock();
  if (!failure.empty()) lose(failure + ", in " + describe(stream));
  if (lost()) return;
  complete(stream);
}

void ThreadBackend::run_untimed(ThreadStream& stream) {
  if (!recorder()->on()) return run(stream.current.work, memory_);
  const std::int64_t start_ns = ns_of(Clock::now());
  run(stream.current.work, memory_);
  record_span(stream, {start_ns, ns_of(Clock::now())});
}

void ThreadBackend::run_timed(ThreadStream& stream) {
  const Operation& operation = stream.current;
  if (operation.duration_ns == 0) return run_untimed(stream);
  const std::scoped_lock engine(engines_[static_cast<std::size_t>(engine_of(operation.work))]);
  const Clock::time_point start = Clock::now();
  const Clock::time_point deadline = start + std::chrono::nanoseconds(operation.duration_ns);
  // The host must not find the data before the copy's time is over.
  const bool at_end = std::holds_alternative<CopyToHost>(operation.work);
  if (!at_end) run(operation.work, memory_);
  sleep_until(stream, deadline);
  if (at_end && !lost()) run(operation.work, memory_);
  record_span(stream, {ns_of(start), ns_of(Clock::now())});
}

void ThreadBackend::sleep_until(ThreadStream& stream, Clock::time_point deadline) {
  Lock lock(mutex_);
  stream.changed.wait_until(lock, deadline, [&] { return lost(); });
}

void ThreadBackend::deliver_due(Lock& lock, ThreadStream& stream) {
  while (!stream.due.empty() && !lost()) {
    std::swap(stream.due, stream.delivering_now);
    lock.unlock();
    for (const core::Callback& callback : stream.delivering_now) {
      if (!lost()) callback();
    }
    lock.lock();
    for (std::size_t i = 0; i < stream.delivering_now.size(); ++i) delivered(&stream);
    stream.delivering_now.clear();
  }
}

// --- the thread for callbacks that no stream completes ---

void ThreadBackend::deliver_apart(Stream* stream, const core::Callback& callback) {
  apart_.push({stream, callback});
  apart_changed_.notify_one();
}

void ThreadBackend::run_apart() noexcept {
  std::fesetenv(FE_DFL_ENV);
  Lock lock(mutex_);
  for (;;) {
    apart_changed_.wait(lock, [&] { return closing_ || !apart_.empty(); });
    if (apart_.empty()) return;
    const Apart next = apart_.pop();
    lock.unlock();
    if (!lost()) next.callback();
    lock.lock();
    delivered(next.stream);
    apart_returned_.notify_all();
  }
}

}  // namespace

std::shared_ptr<device::Backend> make_thread_backend(const Options& options) {
  return std::make_shared<ThreadBackend>(options, DeviceMemory::Kind::fenced);
}

std::shared_ptr<device::Backend> make_host_backend() {
  const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto backend = std::make_shared<ThreadBackend>(Options{.memory_bytes = pages * page_bytes},
                                                       DeviceMemory::Kind::host);
  backend->add_caller_stream();
  return backend;
}

}  // namespace outboard::sim
