// SPDX-License-Identifier: Apache-2.0
#include "workers.hpp"

#include <stdexcept>
#include <string>
#include <system_error>

namespace gpt {

Workers::Workers(std::size_t threads) {
  try {
    for (std::size_t i = 1; i < threads; ++i) threads_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& error) {
    const std::string number = std::to_string(threads_.size() + 1);
    end_threads();
    throw std::runtime_error("kernel thread " + number + " of " + std::to_string(threads) +
                             " could not start: " + error.what() + "; lower --kernel-threads");
  }
}

Workers::~Workers() {
  end_threads();
}

void Workers::end_threads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::run_all(std::size_t tasks) {
  tasks_ = tasks;
  next_ = 0;
  if (threads_.empty() || tasks < 2) return take_tasks(0);
  {
    const std::lock_guard lock(mutex_);
    ++round_;
    busy_ = threads_.size();
  }
  start_.notify_all();
  take_tasks(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
}

void Workers::take_tasks(std::size_t thread) {
  for (std::size_t i = next_.fetch_add(1); i < tasks_; i = next_.fetch_add(1)) {
    call_(context_, i, thread);
  }
}

void Workers::work(std::size_t thread) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    start_.wait(lock, [&] { return stopping_ || round_ != seen; });
    if (stopping_) return;
    seen = round_;
    lock.unlock();
    take_tasks(thread);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace gpt
