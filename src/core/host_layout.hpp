// SPDX-License-Identifier: Apache-2.0
/// How memory is laid out: what the engine maps and allocates, and a plan of it counts.
#pragma once

#include <cstddef>

namespace outboard::core {

/// Streams that a state may have; what is read beside them is staggered behind as many.
inline constexpr std::size_t kMaxStateStreams = 4;

/// Stream k starts this many bytes times k behind the start of its arena. Arenas start on borders
/// of 2 MiB, and streams that are read together from addresses with equal low bits fight for one
/// place in the cache. Whole lines of 64 bytes, and no whole number of pages.
inline constexpr std::size_t kStreamStagger = 4096 + 256;

/// As device memory is handed out, in bytes.
inline constexpr std::size_t kDeviceAlign = 256;

/// Bounce ring, where not everything is pinned: enough for a copy each way, a drain and a fill at
/// the same time.
inline constexpr std::size_t kRingSlots = 4;
/// Bounce ring of Accumulate::host. Every gradient passes: two more copies on the link while others
/// are added up.
inline constexpr std::size_t kGradientRingSlots = 8;

}  // namespace outboard::core
