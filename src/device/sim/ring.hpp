// SPDX-License-Identifier: Apache-2.0
/// A queue that grows and never shrinks: after warm-up it allocates nothing.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace outboard::sim {

/// First in, first out. Not thread-safe.
template <class T>
class Ring {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  void push(T value) {
    if (size_ == slots_.size()) grow();
    slots_[(head_ + size_) & (slots_.size() - 1)] = std::move(value);
    ++size_;
  }
  /// Only if not empty.
  T pop() {
    T value = std::move(slots_[head_]);
    head_ = (head_ + 1) & (slots_.size() - 1);
    --size_;
    return value;
  }
  void clear() {
    while (!empty()) (void)pop();
  }

 private:
  void grow() {
    std::vector<T> larger(2 * slots_.size());
    const std::size_t size = size_;
    for (std::size_t i = 0; i < size; ++i) larger[i] = pop();
    slots_ = std::move(larger);
    head_ = 0;
    size_ = size;
  }

  // A power of two of them; enough at first that only deep queues grow.
  std::vector<T> slots_ = std::vector<T>(256);
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace outboard::sim
