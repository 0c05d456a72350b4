// SPDX-License-Identifier: Apache-2.0
/// Ends the process where a reader asks for more memory than its input can be the reason of.
#pragma once

#include <cstddef>

namespace outboard::testing {

/// While it lives, memory that `new` has given out since and not taken back stays below a bound, or
/// the process aborts, saying how much was asked. For one at a time, in a process of one thread.
class MemoryBound {
 public:
  explicit MemoryBound(std::size_t most_bytes) noexcept;
  ~MemoryBound();
  MemoryBound(const MemoryBound&) = delete;
  MemoryBound& operator=(const MemoryBound&) = delete;
};

}  // namespace outboard::testing
