// SPDX-License-Identifier: Apache-2.0
/// What the memory can do, measured with nothing to compute.
#pragma once

#include <array>
#include <span>

namespace outboard::update_bench {

/// Reads and writes every element of three FP32 streams of one length and leaves their bits as they
/// are: the traffic of an update's state, 24 bytes for each element.
void touch_three(const std::array<std::span<float>, 3>& streams) noexcept;
/// a = b + 3 c, the triad of STREAM: 12 bytes for each element as STREAM counts them.
void triad(const std::array<std::span<float>, 3>& streams) noexcept;

}  // namespace outboard::update_bench
