// SPDX-License-Identifier: Apache-2.0
/// Run-time dispatch of this room alone: other users of Highway in the process neither move it nor
/// are moved by it.
#pragma once

#include "simd/highway_targets.hpp"

#include <cstddef>

#include "hwy/targets.h"

namespace outboard::simd {

/// The choice that `force_target` moves. Initialised from OUTBOARD_SIMD and the CPU at first use.
const hwy::ChosenTarget& chosen_target() noexcept;

/// Index into a table made by HWY_EXPORT.
inline std::size_t dispatch_index() noexcept {
  constexpr bool kOneTarget = (HWY_TARGETS & (HWY_TARGETS - 1)) == 0;
  return kOneTarget ? 0 : chosen_target().GetIndex();
}

}  // namespace outboard::simd

/// The chosen target's version of a function that HWY_EXPORT has named in the same namespace.
#define OUTBOARD_SIMD_DISPATCH(function) \
  (*(HWY_DISPATCH_TABLE(function)[::outboard::simd::dispatch_index()]))
