// SPDX-License-Identifier: Apache-2.0
/// Rules of two phases (LAMB) on the host: the norms of every block, which the first phase leaves,
/// and the one scalar that the second phase makes of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/flow.hpp"
#include "simd/rules/lamb.hpp"

namespace outboard::pipeline {

class LambNorms {
 public:
  explicit LambNorms(const Flow& flow) : flow_(flow) {}
  /// Makes room for the parameters that there are now; what an update has left is gone.
  void fit();

  /// The entries of a segment's blocks, in order. Without the lock too: tasks write their own.
  [[nodiscard]] std::span<simd::BlockNorms> segment(const plan::Segment& segment) noexcept;
  /// lr times the trust ratio of a parameter all of whose blocks are there.
  [[nodiscard]] float lr_trust(std::uint32_t parameter) const noexcept;

 private:
  const Flow& flow_;
  std::vector<std::uint64_t> first_block_;  // by parameter, and the end
  std::vector<simd::BlockNorms> blocks_;    // of two-phase parameters, parameter after parameter
};

}  // namespace outboard::pipeline
