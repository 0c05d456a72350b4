// SPDX-License-Identifier: Apache-2.0
/// Words of pinned host memory that streams wait for and host threads write.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cuda/context.hpp"

namespace outboard::device::cuda {

/// One flag.
struct FlagState {
  std::uint32_t* word = nullptr;  ///< on the host
  CUdeviceptr address = 0;        ///< the same word, to the device
  std::uint32_t awaited = 0;      ///< the last value that a stream was told to wait for
  bool was_awaited = false;
};

/// Hands out words, a line of the cache each, from pages that it takes as they are needed. Calls
/// need the context to be current. Not thread-safe.
class FlagWords {
 public:
  explicit FlagWords(const Context& context) : context_(context) {}
  FlagWords(const FlagWords&) = delete;
  FlagWords& operator=(const FlagWords&) = delete;

  /// A word that is 0. @throws Error{device_failure}.
  [[nodiscard]] FlagState take();
  void give_back(const FlagState& flag) noexcept;
  /// Frees all of it. No stream waits for a word any more.
  void clear() noexcept;

 private:
  void add_page();

  const Context& context_;
  std::vector<void*> pages_;
  std::vector<FlagState> free_;
};

}  // namespace outboard::device::cuda
