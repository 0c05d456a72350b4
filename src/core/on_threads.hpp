// SPDX-License-Identifier: Apache-2.0
/// A few pieces of blocking work shared out among threads that live as long as the call.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace outboard::core {

/// Calls work(i) for every i below `count`, on the caller and on up to `threads` - 1 threads more,
/// and returns when all have returned. The first exception is thrown then; pieces that have not
/// begun are left out once there is one.
template <class Work>
void on_threads(std::size_t threads, std::size_t count, const Work& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&]() noexcept {
    try {
      for (std::size_t i = next++; i < count && !failed; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      failed = true;
    }
  };
  std::vector<std::thread> helpers;
  helpers.reserve(std::min(threads, count));
  try {
    for (std::size_t i = 1; i < std::min(threads, count); ++i) helpers.emplace_back(run);
  } catch (...) {  // fewer then: the caller works as well
  }
  run();
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace outboard::core
