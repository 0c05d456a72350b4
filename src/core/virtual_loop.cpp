// SPDX-License-Identifier: Apache-2.0
#include "core/virtual_loop.hpp"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "core/mix64.hpp"
#include "outboard/error.hpp"

namespace outboard::core {

/// Heap order of the standard algorithms: the top is the entry that no other is later than.
struct VirtualLoop::Later {
  bool operator()(const Entry& a, const Entry& b) const noexcept {
    return std::tie(a.due, a.tie, a.sequence) > std::tie(b.due, b.tie, b.sequence);
  }
};

VirtualLoop::VirtualLoop(std::uint64_t seed) : seed_(seed), random_state_(seed) {
  heap_.reserve(1024);  // how many events are due at once varies with the seed
}

void VirtualLoop::after(VirtualTime delay, Callback callback) {
  if (delay < 0 || !callback) {
    throw Error(ErrorCode::invalid_argument,
                "VirtualLoop::after: delay " + std::to_string(delay) +
                    " ns; a delay of at least 0 and a callback are needed");
  }
  push({now_ + delay, next_random(), sequence_++, callback});
}

void VirtualLoop::after_this_moment(Callback callback) {
  push({now_, UINT64_MAX, sequence_++, callback});
}

void VirtualLoop::push(const Entry& entry) {
  heap_.push_back(entry);
  std::push_heap(heap_.begin(), heap_.end(), Later{});
}

bool VirtualLoop::run_one() {
  if (look_) look_();
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), Later{});
  const Entry entry = heap_.back();
  heap_.pop_back();
  now_ = entry.due;
  entry.callback();
  return true;
}

void VirtualLoop::forget(const void* context) noexcept {
  std::erase_if(heap_, [context](const Entry& entry) { return entry.callback.context == context; });
  std::make_heap(heap_.begin(), heap_.end(), Later{});
}

std::uint64_t VirtualLoop::random_below(std::uint64_t bound) {
  if (bound == 0) {
    throw Error(ErrorCode::invalid_argument, "VirtualLoop::random_below: bound 0; at least 1");
  }
  // 2^64 modulo bound: draws below it would make the small results more frequent.
  const std::uint64_t uneven = (0 - bound) % bound;
  for (;;) {
    const std::uint64_t draw = next_random();
    if (draw >= uneven) return draw % bound;
  }
}

// Any seed, also 0, starts a good sequence.
std::uint64_t VirtualLoop::next_random() noexcept {
  const std::uint64_t drawn = mix64(random_state_);
  random_state_ += kMix64Step;
  return drawn;
}

std::uint64_t VirtualLoop::add_reporter(std::function<void(std::string&)> reporter) {
  reporters_.emplace_back(next_token_, std::move(reporter));
  return next_token_++;
}

void VirtualLoop::remove_reporter(std::uint64_t token) noexcept {
  std::erase_if(reporters_, [token](const auto& entry) { return entry.first == token; });
}

std::string VirtualLoop::report() const {
  std::string text;
  for (const auto& [token, reporter] : reporters_) reporter(text);
  return text;
}

}  // namespace outboard::core
