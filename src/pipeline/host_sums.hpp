// SPDX-License-Identifier: Apache-2.0
/// Accumulate::host: the FP32 sums of the micro-batches' gradients, next to the state of their
/// bucket, and their part of the global norm.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/state_store.hpp"
#include "pipeline/flow.hpp"
#include "simd/reduce.hpp"

namespace outboard::pipeline {

class HostSums {
 public:
  /// The sums themselves are in each generation's store.
  explicit HostSums(const Flow& flow) : flow_(flow) { fit(); }
  /// Maps 4 bytes for each element, beside a state of that many; touches nothing.
  [[nodiscard]] static memory::StateStore make_store(memory::StateHomes& homes,
                                                     std::span<const std::uint64_t> node_elems,
                                                     memory::FirstTouch touch);
  /// As memory::StateStore::reserved_bytes(), of that store.
  [[nodiscard]] static std::uint64_t reserved_bytes(memory::StateHomes& homes,
                                                    memory::ReservedCredit& credit,
                                                    std::span<const std::uint64_t> node_elems);
  /// Makes room for the norms of the parameters that there are now. Between steps.
  void fit();

  struct Addition {
    std::uint32_t segment = 0;
    const std::byte* gradient = nullptr;  ///< the whole segment, in its parameter's dtype
    bool first = false;                   ///< of the step's micro-batches: the sum starts anew
    bool last = false;                    ///< the norm is taken of the sum on the way
  };
  /// Part `part` of `parts` of an addition. Without the lock, on an executor thread; additions to
  /// one segment come one after the other.
  void add(const Addition& addition, std::uint32_t part, std::uint32_t parts) noexcept;
  /// The norm of sums whose last addition was not marked as such. As add().
  void reduce(std::uint32_t segment, std::uint32_t part, std::uint32_t parts) noexcept;

  /// The sums of a bucket, in its padded elements.
  [[nodiscard]] std::span<const float> bucket(std::uint32_t bucket) const;
  /// What the norm kernel would have left for the whole parameter.
  [[nodiscard]] device::GradientScalars scalars(std::uint32_t parameter) const;
  /// Touches a bucket's pages on its node. As add().
  void touch(std::uint32_t bucket, std::uint32_t part, std::uint32_t parts) noexcept;

 private:
  [[nodiscard]] std::span<float> segment(std::uint32_t segment) const;
  void reduce_blocks(std::uint32_t segment, std::uint64_t from, std::uint64_t to) noexcept;

  const Flow& flow_;
  std::vector<std::uint64_t> first_block_;       // by parameter
  std::vector<simd::GradientReduction> blocks_;  // of the norm's tree, parameter after parameter
};

}  // namespace outboard::pipeline
