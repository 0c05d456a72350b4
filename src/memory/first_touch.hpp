// SPDX-License-Identifier: Apache-2.0
/// Bringing pages in: a page lies where it is first touched, or where its range is bound to, and
/// the kernel clears it then, on the thread that touches it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/function_ref.hpp"

namespace outboard::memory {

/// Memory that is bound to a node and that nobody has touched.
struct FreshMemory {
  std::uint32_t node = 0;
  std::span<std::byte> bytes;
};

/// Brings all of it in, of each node on that node's threads, all at once. Blocks.
/// @return false if the system refuses a page.
using FirstTouch = core::FunctionRef<bool(std::span<const FreshMemory>)>;

/// Brings page-aligned fresh memory in, on the calling thread. What it holds stays zero.
/// @return 0, or the errno of a refusal: of reserved huge pages there are none left.
[[nodiscard]] int bring_in(std::span<std::byte> fresh) noexcept;

/// A FirstTouch of the calling thread.
struct TouchHere {
  bool operator()(std::span<const FreshMemory> fresh) const noexcept;
};
inline constexpr TouchHere touch_here{};

}  // namespace outboard::memory
