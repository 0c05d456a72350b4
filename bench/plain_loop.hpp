// SPDX-License-Identifier: Apache-2.0
/// AdamW as it is written first: what the kernel must not be slower than.
#pragma once

#include "simd/update.hpp"

namespace outboard::bench {

/// One step in one loop for the compiler to vectorise, without thresholds, counts or stores past
/// the cache. Gradient and weight have one format, and may be the same memory.
void plain_adamw(const simd::UpdateShard& shard, const simd::AdamWScalars& scalars) noexcept;

}  // namespace outboard::bench
