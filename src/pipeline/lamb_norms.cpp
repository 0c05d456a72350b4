// SPDX-License-Identifier: Apache-2.0
#include "pipeline/lamb_norms.hpp"

#include "simd/reduce.hpp"
#include "simd/rules/lamb_trust.hpp"

namespace outboard::pipeline {

void LambNorms::fit() {
  std::uint64_t blocks = 0;
  first_block_.clear();
  for (const Parameter& parameter : flow_.parameters) {
    first_block_.push_back(blocks);
    if (parameter.two_phase) blocks += simd::reduce_block_count(parameter.elems);
  }
  first_block_.push_back(blocks);
  blocks_.resize(blocks);
}

std::span<simd::BlockNorms> LambNorms::segment(const plan::Segment& segment) noexcept {
  const std::uint64_t first =
      first_block_[segment.parameter] + segment.first_element / simd::kReduceBlockElems;
  return std::span(blocks_).subspan(first, simd::reduce_block_count(segment.elems));
}

float LambNorms::lr_trust(std::uint32_t parameter) const noexcept {
  const std::uint64_t first = first_block_[parameter];
  const std::uint64_t count = first_block_[parameter + 1] - first;
  return simd::lamb_lr_trust(flow_.parameters[parameter].lr,
                             std::span(blocks_).subspan(first, count));
}

}  // namespace outboard::pipeline
