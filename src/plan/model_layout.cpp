// SPDX-License-Identifier: Apache-2.0
#include "plan/model_layout.hpp"

#include <algorithm>

#include "core/pack_layout.hpp"
#include "core/round_up.hpp"
#include "plan/interleave.hpp"

namespace outboard::plan {
namespace {

[[nodiscard]] bool is_small(const ParameterShape& shape) {
  return shape.elems < core::kPackBelowBytes / dtype_bytes(shape.dtype);
}

/// Appends segments, closing a bucket whenever the next piece does not fit.
class Cutter {
 public:
  Cutter(ModelLayout& layout, std::uint64_t bucket_bytes)
      : layout_(layout), bucket_bytes_(bucket_bytes) {}

  void add(std::uint32_t parameter, const ParameterShape& shape) {
    const auto first = static_cast<std::uint32_t>(layout_.segments.size());
    if (open_ && shape.elems > 0 && layout_.buckets.back().dtype != shape.dtype) open_ = false;
    if (shape.whole && piece_elems(shape.elems, shape) < shape.elems) open_ = false;
    const std::size_t first_bucket = layout_.buckets.size() - (open_ ? 1 : 0);
    for (std::uint64_t done = 0; done < shape.elems;) {
      const std::uint64_t piece = piece_elems(shape.elems - done, shape);
      if (piece == 0) {
        open_ = false;
        continue;
      }
      if (!open_) open(shape.dtype);
      append({parameter, 0, done, piece, 0}, is_small(shape) && piece == shape.elems);
      done += piece;
    }
    for (std::size_t b = first_bucket; shape.whole && b < layout_.buckets.size(); ++b) {
      layout_.buckets[b].unit = layout_.buckets[first_bucket].unit;
    }
    const auto end = static_cast<std::uint32_t>(layout_.segments.size());
    layout_.parameters.push_back({first, end - first});
  }

  /// Gives every segment its place: what is packed comes first.
  void place() {
    for (Bucket& bucket : layout_.buckets) {
      if (bucket.packed_segments < 2) bucket.pack_nothing();
      std::uint64_t packed = 0;
      std::uint64_t rest = core::round_up(bucket.packed_elems, kSegmentAlignElems);
      for (std::uint32_t i = 0; i < bucket.segments; ++i) {
        Segment& segment = layout_.segments[bucket.first_segment + i];
        const bool packs = bucket.packed_segments > 0 && packs_[bucket.first_segment + i];
        segment.offset = packs ? packed : rest;
        (packs ? packed : rest) +=
            packs ? segment.elems : core::round_up(segment.elems, kSegmentAlignElems);
      }
    }
  }

 private:
  /// How much of `remaining` goes into the open bucket; 0: the bucket has to be closed first.
  [[nodiscard]] std::uint64_t piece_elems(std::uint64_t remaining,
                                          const ParameterShape& shape) const {
    const std::uint64_t fit = bucket_bytes_ / dtype_bytes(shape.dtype);
    const std::uint64_t capacity =
        std::max(fit / kSegmentAlignElems * kSegmentAlignElems, kBorderElems);
    const std::uint64_t packed = open_ ? layout_.buckets.back().packed_elems : 0;
    const std::uint64_t rest = open_ ? rest_elems_ : 0;
    // Small parameters need no padding between them.
    if (is_small(shape) && remaining == shape.elems && packed + rest + remaining <= capacity) {
      return remaining;
    }
    const std::uint64_t used = core::round_up(packed, kSegmentAlignElems) + rest;
    const std::uint64_t room = capacity > used ? capacity - used : 0;
    if (remaining <= room) return remaining;
    return room / kBorderElems * kBorderElems;
  }

  void open(DType dtype) {
    Bucket& bucket = layout_.buckets.emplace_back();
    bucket.first_segment = static_cast<std::uint32_t>(layout_.segments.size());
    bucket.unit = static_cast<std::uint32_t>(layout_.buckets.size() - 1);
    bucket.dtype = dtype;
    rest_elems_ = 0;
    open_ = true;
  }

  void append(Segment segment, bool packs) {
    Bucket& bucket = layout_.buckets.back();
    segment.bucket = static_cast<std::uint32_t>(layout_.buckets.size() - 1);
    layout_.segments.push_back(segment);
    packs_.push_back(packs);
    bucket.segments += 1;
    bucket.elems += segment.elems;
    bucket.packed_segments += packs ? 1 : 0;
    (packs ? bucket.packed_elems : rest_elems_) +=
        packs ? segment.elems : core::round_up(segment.elems, kSegmentAlignElems);
    bucket.padded_elems = core::round_up(bucket.packed_elems, kSegmentAlignElems) + rest_elems_;
  }

  ModelLayout& layout_;
  std::uint64_t bucket_bytes_;
  std::vector<bool> packs_;       // by segment
  std::uint64_t rest_elems_ = 0;  // of the open bucket: padded, not packed
  bool open_ = false;
};

}  // namespace

void assign_nodes(ModelLayout& layout, std::span<const double> weights,
                  const std::vector<bool>& on_host) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(layout.buckets.size());
  for (std::size_t i = 0; i < layout.buckets.size(); ++i) {
    if (on_host[i]) sizes.push_back(layout.buckets[i].padded_elems);
  }
  std::vector<std::uint32_t> used;  // nodes that take buckets
  std::vector<double> shares;
  for (std::uint32_t node = 0; node < weights.size(); ++node) {
    if (weights[node] == 0.0) continue;
    used.push_back(node);
    shares.push_back(weights[node]);
  }
  const std::vector<std::uint32_t> nodes = interleave(sizes, shares);
  layout.node_elems.assign(weights.size(), 0);
  auto next = nodes.begin();
  for (std::size_t i = 0; i < layout.buckets.size(); ++i) {
    Bucket& bucket = layout.buckets[i];
    bucket.node = on_host[i] ? used[*next++] : 0;
    bucket.node_offset = 0;
    if (!on_host[i]) continue;
    bucket.node_offset = layout.node_elems[bucket.node];
    layout.node_elems[bucket.node] += bucket.padded_elems;
  }
}

void append_layout(ModelLayout& layout, const ModelLayout& more) {
  const auto parameters = static_cast<std::uint32_t>(layout.parameters.size());
  const auto segments = static_cast<std::uint32_t>(layout.segments.size());
  const auto buckets = static_cast<std::uint32_t>(layout.buckets.size());
  for (Segment segment : more.segments) {
    segment.parameter += parameters;
    segment.bucket += buckets;
    layout.segments.push_back(segment);
  }
  for (Bucket bucket : more.buckets) {
    bucket.first_segment += segments;
    bucket.unit += buckets;
    layout.buckets.push_back(bucket);
  }
  for (const SegmentRange& range : more.parameters) {
    layout.parameters.push_back({range.first + segments, range.count});
  }
  layout.node_elems.resize(std::max(layout.node_elems.size(), more.node_elems.size()), 0);
  for (std::size_t node = 0; node < more.node_elems.size(); ++node) {
    layout.node_elems[node] += more.node_elems[node];
  }
}

ModelLayout make_layout(std::span<const ParameterShape> parameters, std::uint64_t bucket_bytes,
                        std::span<const double> node_weights) {
  ModelLayout layout;
  Cutter cutter(layout, bucket_bytes);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    cutter.add(static_cast<std::uint32_t>(i), parameters[i]);
  }
  cutter.place();
  assign_nodes(layout, node_weights, std::vector<bool>(layout.buckets.size(), true));
  return layout;
}

}  // namespace outboard::plan
