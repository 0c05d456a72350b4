// SPDX-License-Identifier: Apache-2.0
/// A call to make later: three words, copied freely, never allocates.
#pragma once

#include <cstdint>

namespace outboard::core {

struct Callback {
  void (*run)(void* context, std::uint64_t argument) noexcept = nullptr;
  void* context = nullptr;
  std::uint64_t argument = 0;

  void operator()() const noexcept { run(context, argument); }
  explicit operator bool() const noexcept { return run != nullptr; }
};

}  // namespace outboard::core
