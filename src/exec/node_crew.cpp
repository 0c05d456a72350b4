// SPDX-License-Identifier: Apache-2.0
#include "exec/node_crew.hpp"

#include <algorithm>
#include <chrono>

#include "exec/run_task.hpp"
#include "topology/affinity.hpp"

namespace outboard::exec {
namespace {

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

NodeCrew::NodeCrew(const topology::Machine& machine, std::uint32_t node, std::uint32_t workers)
    : machine_(machine),
      node_(node),
      workers_(workers),
      wake_(std::make_unique<std::condition_variable[]>(workers)) {}

void NodeCrew::post(const Task& task) noexcept {
  const std::lock_guard lock(mutex_);
  queue_.push(task);
  start_next();
}

void NodeCrew::reserve(std::size_t tasks) {
  const std::lock_guard lock(mutex_);
  queue_.reserve(tasks);
}

void NodeCrew::record_to(core::SpanRecorder& recorder) {
  const std::lock_guard lock(mutex_);
  recorder_ = &recorder;
}

/// Hands the next task to its workers if the node is free. Mutex held.
void NodeCrew::start_next() noexcept {
  if (running_.active || queue_.empty() || came_ == 0) return;
  running_.task = queue_.pop();
  running_.turn += 1;
  running_.lanes = std::min(running_.task.parts, came_);
  running_.unfinished = running_.lanes;
  running_.active = true;
  running_.started_ns = -1;
  for (std::uint32_t worker = 0; worker < running_.lanes; ++worker) wake_[worker].notify_one();
}

void NodeCrew::run_lane(std::unique_lock<std::mutex>& lock, std::uint32_t worker) noexcept {
  if (running_.started_ns < 0) running_.started_ns = now_ns();
  const Task task = running_.task;
  const std::uint32_t lanes = running_.lanes;
  lock.unlock();
  for (std::uint64_t part = worker; part < task.parts; part += lanes) {
    run_part(task, static_cast<std::uint32_t>(part));
  }
  lock.lock();
  if (--running_.unfinished == 0) finish(lock, worker);
}

/// On the worker that ran the last part: nobody else touches `running_` until the next task starts.
void NodeCrew::finish(std::unique_lock<std::mutex>& lock, std::uint32_t worker) noexcept {
  const core::RecordedTime time{running_.started_ns, now_ns()};
  busy_ns_ += time.end_ns - time.start_ns;
  const Task task = running_.task;
  record_task(recorder_, task, time);
  lock.unlock();
  run_done(task);
  lock.lock();
  rest(lock, worker, rest_ns(task, time.end_ns - time.start_ns));
  running_.active = false;
  start_next();
  if (drained()) {
    for (std::uint32_t each = 0; each < workers_; ++each) wake_[each].notify_one();
  }
}

/// Not once the crew is to end: then the rests would only delay that.
void NodeCrew::rest(std::unique_lock<std::mutex>& lock, std::uint32_t worker,
                    std::int64_t ns) noexcept {
  if (ns == 0) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
  wake_[worker].wait_until(lock, end, [this] { return stopping_; });
}

bool NodeCrew::drained() const noexcept {
  return stopping_ && !running_.active && queue_.empty();
}

void NodeCrew::serve(std::uint32_t worker) noexcept {
  std::unique_lock lock(mutex_);
  std::uint64_t last_turn = 0;
  while (true) {
    if (running_.active && running_.turn != last_turn && worker < running_.lanes) {
      last_turn = running_.turn;
      run_lane(lock, worker);
    } else if (drained()) {
      return;
    } else {
      wake_[worker].wait(lock);
    }
  }
}

/// @return whether there is a place and something to do.
bool NodeCrew::enter() noexcept {
  const std::lock_guard lock(mutex_);
  if (entered_ == workers_ || drained()) return false;
  entered_ += 1;
  return true;
}

void NodeCrew::serve_bound() noexcept {
  const topology::SavedAffinity affinity;
  const std::string note = topology::bind_this_thread(machine_, node_);
  std::uint32_t worker = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!note.empty()) binding_note_ = note;
    worker = came_++;
    start_next();
    changed_.notify_all();
  }
  serve(worker);
}

void NodeCrew::work() noexcept {
  if (!enter()) return;
  serve_bound();
  const std::lock_guard lock(mutex_);
  gone_ += 1;
  changed_.notify_all();
}

std::uint32_t NodeCrew::wait_for_workers(double seconds) {
  const std::chrono::duration<double> patience(seconds);
  std::unique_lock lock(mutex_);
  std::uint32_t came = came_;
  while (came < workers_ &&
         changed_.wait_for(lock, patience, [this, &came] { return came_ > came; })) {
    came = came_;
  }
  return came;
}

void NodeCrew::wait_for_workers() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return came_ == workers_; });
}

void NodeCrew::stop() noexcept {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  for (std::uint32_t worker = 0; worker < workers_; ++worker) wake_[worker].notify_one();
}

void NodeCrew::wait_until_gone() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return drained() && gone_ == entered_; });
}

std::int64_t NodeCrew::busy_ns() const noexcept {
  const std::lock_guard lock(mutex_);
  return busy_ns_;
}

std::string NodeCrew::binding_note() const {
  const std::lock_guard lock(mutex_);
  return binding_note_;
}

}  // namespace outboard::exec
