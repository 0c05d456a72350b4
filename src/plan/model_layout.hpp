// SPDX-License-Identifier: Apache-2.0
/// Parameters cut into buckets, in the order in which the forward pass uses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "outboard/types.hpp"

namespace outboard::plan {

/// Borders inside a parameter are multiples of this: one block of the norm's fixed tree.
inline constexpr std::uint64_t kBorderElems = 4096;
/// Each segment that is not packed starts on a multiple of this in its bucket: a 64-byte line of
/// 16-bit elements, two of f32.
inline constexpr std::uint64_t kSegmentAlignElems = 32;

/// What the layout needs to know of one parameter.
struct ParameterShape {
  std::uint64_t elems = 0;
  DType dtype = DType::f16;
  /// Something is added up over all of it where its state lives: its buckets have one home.
  bool whole = false;
};

/// A run of one parameter's elements inside one bucket.
struct Segment {
  std::uint32_t parameter = 0;
  std::uint32_t bucket = 0;
  std::uint64_t first_element = 0;  ///< of the parameter; a multiple of kBorderElems
  std::uint64_t elems = 0;          ///< >= 1
  std::uint64_t offset = 0;         ///< elements from the start of the bucket
};

/// What is updated and uploaded as one piece, on one node. All of one dtype.
struct Bucket {
  std::uint32_t first_segment = 0;
  std::uint32_t segments = 0;
  std::uint64_t elems = 0;         ///< without padding
  std::uint64_t padded_elems = 0;  ///< what its slot and state take
  std::uint32_t node = 0;
  std::uint64_t node_offset = 0;  ///< padded elements of this node's earlier buckets
  std::uint32_t unit = 0;         ///< its first bucket: those of one unit have one home
  DType dtype = DType::f16;
  std::uint64_t cost_elems = 0;  ///< its update, in elements of AdamW in f16; 0: as `elems`
  /// Small parameters that cross the link as one: they fill its first `packed_elems` elements
  /// without a gap. None, or two at least.
  std::uint32_t packed_segments = 0;
  std::uint64_t packed_elems = 0;

  [[nodiscard]] bool packs(const Segment& segment) const noexcept {
    return segment.offset < packed_elems;
  }
  /// Its small parameters cross the link one by one, from where they are.
  void pack_nothing() noexcept { packed_segments = 0, packed_elems = 0; }
  [[nodiscard]] std::size_t packed_bytes() const noexcept {
    return static_cast<std::size_t>(packed_elems) * dtype_bytes(dtype);
  }
  /// Of its gradients, and of its weights: the size of its slot.
  [[nodiscard]] std::size_t slot_bytes() const noexcept {
    return static_cast<std::size_t>(padded_elems) * dtype_bytes(dtype);
  }
};

struct SegmentRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;  ///< 0 for an empty parameter
};

struct ModelLayout {
  std::vector<Segment> segments;          ///< in forward order
  std::vector<Bucket> buckets;            ///< in forward order
  std::vector<SegmentRange> parameters;   ///< segments of each parameter
  std::vector<std::uint64_t> node_elems;  ///< padded elements on each node
};

/// Small parameters of one dtype in a row share a bucket of at most `bucket_bytes` of gradients,
/// large ones are split at multiples of kBorderElems; a bucket has room for one such block at
/// least. Whole ones of less than 64 KiB are packed, if a bucket has two of them or more: they lie
/// at its start, in forward order as the rest behind them. One that is `whole` begins a new bucket
/// if it does not fit into the open one. Nodes are interleaved by weight: for every prefix of the
/// buckets each node's elements are within the largest bucket's of its share of the weights (both
/// padded).
/// @throws Error{invalid_argument} for no node, or a weight that is not positive and finite.
[[nodiscard]] ModelLayout make_layout(std::span<const ParameterShape> parameters,
                                      std::uint64_t bucket_bytes,
                                      std::span<const double> node_weights);

/// Puts another layout behind: its parameters, segments, buckets and units are numbered on, and
/// what lies on a node adds up. Its buckets keep their offsets, which are those of memory of its
/// own.
void append_layout(ModelLayout& layout, const ModelLayout& more);

/// Deals the buckets out to the nodes again, those alone that have room on the host. A node of
/// weight 0 gets none. @throws as interleave().
void assign_nodes(ModelLayout& layout, std::span<const double> node_weights,
                  const std::vector<bool>& on_host);

}  // namespace outboard::plan
