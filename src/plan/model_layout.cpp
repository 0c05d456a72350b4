// SPDX-License-Identifier: Apache-2.0
#include "plan/model_layout.hpp"

#include <algorithm>

namespace outboard::plan {
namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Appends segments, closing a bucket whenever the next piece does not fit.
class Cutter {
 public:
  Cutter(ModelLayout& layout, std::uint64_t bucket_elems)
      : layout_(layout),
        capacity_(std::max(bucket_elems / kSegmentAlignElems * kSegmentAlignElems, kBorderElems)) {}

  void add(std::uint32_t parameter, std::uint64_t elems) {
    const auto first = static_cast<std::uint32_t>(layout_.segments.size());
    for (std::uint64_t done = 0; done < elems;) {
      const std::uint64_t piece = piece_elems(elems - done);
      if (piece == 0) {
        open_ = false;
        continue;
      }
      append(parameter, done, piece);
      done += piece;
    }
    const auto end = static_cast<std::uint32_t>(layout_.segments.size());
    layout_.parameters.push_back({first, end - first});
  }

 private:
  /// How much of `remaining` goes into the open bucket; 0: the bucket has to be closed first.
  [[nodiscard]] std::uint64_t piece_elems(std::uint64_t remaining) const {
    const std::uint64_t used = open_ ? layout_.buckets.back().padded_elems : 0;
    const std::uint64_t room = capacity_ > used ? capacity_ - used : 0;
    if (remaining <= room) return remaining;
    return room / kBorderElems * kBorderElems;
  }

  void append(std::uint32_t parameter, std::uint64_t first_element, std::uint64_t elems) {
    if (!open_) {
      layout_.buckets.push_back(
          {static_cast<std::uint32_t>(layout_.segments.size()), 0, 0, 0, 0, 0});
      open_ = true;
    }
    Bucket& bucket = layout_.buckets.back();
    layout_.segments.push_back({parameter, static_cast<std::uint32_t>(layout_.buckets.size() - 1),
                                first_element, elems, bucket.padded_elems});
    bucket.segments += 1;
    bucket.elems += elems;
    bucket.padded_elems += round_up(elems, kSegmentAlignElems);
  }

  ModelLayout& layout_;
  std::uint64_t capacity_;
  bool open_ = false;
};

/// Gives each bucket to the node that would finish it first if all nodes had only these to do.
void assign_nodes(ModelLayout& layout, std::span<const double> weights) {
  layout.node_elems.assign(weights.size(), 0);
  for (Bucket& bucket : layout.buckets) {
    const auto finish = [&](std::size_t node) {
      return static_cast<double>(layout.node_elems[node] + bucket.padded_elems) / weights[node];
    };
    std::size_t best = 0;
    for (std::size_t node = 1; node < weights.size(); ++node) {
      if (finish(node) < finish(best)) best = node;
    }
    bucket.node = static_cast<std::uint32_t>(best);
    bucket.node_offset = layout.node_elems[best];
    layout.node_elems[best] += bucket.padded_elems;
  }
}

}  // namespace

ModelLayout make_layout(std::span<const std::uint64_t> parameter_elems, std::uint64_t bucket_elems,
                        std::span<const double> node_weights) {
  ModelLayout layout;
  Cutter cutter(layout, bucket_elems);
  for (std::size_t i = 0; i < parameter_elems.size(); ++i) {
    cutter.add(static_cast<std::uint32_t>(i), parameter_elems[i]);
  }
  assign_nodes(layout, node_weights);
  for (const Bucket& bucket : layout.buckets) {
    layout.largest_bucket_elems = std::max(layout.largest_bucket_elems, bucket.padded_elems);
  }
  return layout;
}

}  // namespace outboard::plan
