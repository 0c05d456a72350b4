// SPDX-License-Identifier: Apache-2.0
/// Which addresses of this process are mapped, as /proc/self/maps has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace outboard::sim {

/// Reads the file again only for an address that it did not have before: what has been unmapped
/// since may still be taken for mapped. It is to find mistakes, not to prove their absence.
/// Thread-safe.
class MappedRanges {
 public:
  /// Whether the process may read (`written`: and write) all of [address, address + bytes).
  /// True where the file cannot be read.
  [[nodiscard]] bool cover(const void* address, std::size_t bytes, bool written);

 private:
  struct Range {
    std::uintptr_t begin = 0, end = 0;
    bool writable = false;
  };
  [[nodiscard]] bool known(std::uintptr_t begin, std::uintptr_t end, bool written) const;
  [[nodiscard]] bool read();

  std::mutex mutex_;
  std::vector<Range> ranges_;  // readable ones, by address
};

}  // namespace outboard::sim
