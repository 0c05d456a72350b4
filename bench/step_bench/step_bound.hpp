// SPDX-License-Identifier: Apache-2.0
/// The time of a step as docs/architecture.md bounds it, worked out from durations and rates alone:
/// nothing here runs the engine.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/model_layout.hpp"

namespace outboard::step_bench {

/// A layer is one parameter. Times in nanoseconds.
struct LayerCost {
  std::uint64_t elems = 0;
  double forward_ns = 0.0;
  double backward_ns = 0.0;
};

struct StepCost {
  std::vector<LayerCost> layers;  ///< in forward order
  std::uint64_t bucket_elems = 4096;
  std::vector<double> update_ns_per_elem;  ///< one entry for each node
  double down_ns_per_elem = 0.0;           ///< 2 bytes of gradient
  double up_ns_per_elem = 0.0;             ///< 2 bytes of weight
};

/// Per bucket, in forward order.
struct BucketCost {
  std::uint32_t node = 0;
  double update_ns = 0.0;
  double upload_ns = 0.0;
  double forward_ns = 0.0;  ///< of the layers whose last piece lies here
  bool on_device = false;   ///< its state: nothing of it is updated or copied on the host
};

struct StepBound {
  double forward_ns = 0.0;          ///< T_f
  double backward_ns = 0.0;         ///< T_b
  double gate_ns = 0.0;             ///< G: end of forward to end of backward and of all copies
  double update_ns = 0.0;           ///< T_c: the busiest node's
  double upload_ns = 0.0;           ///< T_u
  double refresh_ns = 0.0;          ///< gate to the last upload's end, pipelined
  double refresh_forward_ns = 0.0;  ///< gate to the end of the next forward, pipelined
  double down_ns = 0.0;             ///< T_d
  double largest_update_ns = 0.0;   ///< of one bucket
  double largest_copies_ns = 0.0;   ///< of one bucket, down and up
  /// The buckets of a gradient of several come at once: one passes all stages, the others wait for
  /// the slowest.
  double split_ns = 0.0;
  bool copies_outstanding = false;  ///< at the end of backward
  std::size_t buckets = 0;

  /// Schedule::exact: at most this.
  [[nodiscard]] double exact_ns() const {
    return gate_ns + refresh_forward_ns + (copies_outstanding ? largest_update_ns : 0.0);
  }
  /// As exact, but the forward waits for all weights: at most this.
  [[nodiscard]] double blocking_ns() const {
    return gate_ns + refresh_ns + forward_ns + (copies_outstanding ? largest_update_ns : 0.0);
  }
  /// Nothing waits for a gate: at most this where buckets are even.
  [[nodiscard]] double open_ns() const {
    return forward_ns + std::max({backward_ns, down_ns, update_ns, upload_ns}) + largest_update_ns +
           largest_copies_ns + split_ns;
  }
  /// One after the other: exactly this.
  [[nodiscard]] double serial_ns() const { return forward_ns + gate_ns + update_ns + upload_ns; }
};

/// Shares of the state go by the nodes' rates; instant nodes are as good as each other.
inline std::vector<double> node_weights(const StepCost& cost) {
  std::vector<double> weights;
  for (const double ns : cost.update_ns_per_elem) {
    if (ns <= 0.0) return std::vector<double>(cost.update_ns_per_elem.size(), 1.0);
    weights.push_back(1e9 / ns);
  }
  return weights;
}

inline plan::ModelLayout layout_of(const StepCost& cost) {
  std::vector<plan::ParameterShape> shapes;
  for (const LayerCost& layer : cost.layers) shapes.push_back({layer.elems, DType::f16});
  return plan::make_layout(shapes, cost.bucket_elems * 2, node_weights(cost));
}

/// `on_device`: one entry for each bucket whose state is on the device, or none at all.
inline std::vector<BucketCost> bucket_costs(const StepCost& cost, const plan::ModelLayout& layout,
                                            const std::vector<bool>& on_device) {
  std::vector<BucketCost> buckets;
  for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
    const plan::Bucket& bucket = layout.buckets[b];
    const bool away = !on_device.empty() && on_device[b];
    const auto elems = away ? 0.0 : static_cast<double>(bucket.elems);
    buckets.push_back({bucket.node, elems * cost.update_ns_per_elem.at(bucket.node),
                       elems * cost.up_ns_per_elem, 0.0, away});
  }
  for (std::size_t i = 0; i < cost.layers.size(); ++i) {
    const plan::SegmentRange pieces = layout.parameters[i];
    const std::uint32_t last = layout.segments[pieces.first + pieces.count - 1].bucket;
    buckets[last].forward_ns += cost.layers[i].forward_ns;
  }
  return buckets;
}

/// max over k <= i of: updates of k's node up to k, then uploads k..i, then forwards from i on.
inline double refresh_forward(const std::vector<BucketCost>& buckets) {
  double forwards = 0.0;
  std::uint32_t nodes = 1;
  for (const BucketCost& bucket : buckets) {
    forwards += bucket.forward_ns;
    nodes = std::max(nodes, bucket.node + 1);
  }
  std::vector<double> updated(nodes, 0.0);  // updates of each node so far
  double uploads = 0.0;                     // so far
  double latest = 0.0;                      // of any k so far: its updates less earlier uploads
  double worst = forwards;
  for (const BucketCost& bucket : buckets) {
    updated[bucket.node] += bucket.update_ns;
    if (!bucket.on_device) latest = std::max(latest, updated[bucket.node] - uploads);
    uploads += bucket.upload_ns;
    worst = std::max(worst, latest + uploads + forwards);
    forwards -= bucket.forward_ns;
  }
  return worst;
}

/// The same without forwards.
inline double refresh(std::vector<BucketCost> buckets) {
  for (BucketCost& bucket : buckets) bucket.forward_ns = 0.0;
  return refresh_forward(buckets);
}

/// Elements that cross the link with a layer's gradients. What a bucket packs leaves with the last
/// of it, which is the first in forward order.
inline double elems_down(const plan::ModelLayout& layout, const std::vector<BucketCost>& buckets,
                         std::size_t layer) {
  std::uint64_t elems = 0;
  const plan::SegmentRange range = layout.parameters[layer];
  for (std::uint32_t k = range.first; k < range.first + range.count; ++k) {
    const plan::Segment& segment = layout.segments[k];
    const plan::Bucket& bucket = layout.buckets[segment.bucket];
    if (buckets[segment.bucket].on_device) continue;
    if (!bucket.packs(segment)) elems += segment.elems;
    if (bucket.packs(segment) && segment.offset == 0) elems += bucket.packed_elems;
  }
  return static_cast<double>(elems);
}

/// Gradients leave in backward order over one link, each when it is there and the link is free.
inline void simulate_backward(const StepCost& cost, const plan::ModelLayout& layout,
                              const std::vector<BucketCost>& buckets, StepBound& bound) {
  double now = 0.0;
  double link_free = 0.0;
  for (std::size_t i = cost.layers.size(); i-- > 0;) {
    now += cost.layers[i].backward_ns;
    const double elems = elems_down(layout, buckets, i);
    // The first copy of the last gradient starts at the end of backward: not outstanding before.
    link_free = std::max(link_free, now) + elems * cost.down_ns_per_elem;
  }
  bound.backward_ns = now;
  bound.gate_ns = std::max(now, link_free);
  bound.copies_outstanding = link_free > now;
}

inline StepBound bound_of(const StepCost& cost, const std::vector<bool>& on_device = {}) {
  plan::ModelLayout layout = layout_of(cost);
  if (!on_device.empty()) {
    std::vector<bool> on_host = on_device;
    on_host.flip();
    plan::assign_nodes(layout, node_weights(cost), on_host);
  }
  const std::vector<BucketCost> buckets = bucket_costs(cost, layout, on_device);
  StepBound bound;
  bound.buckets = buckets.size();
  simulate_backward(cost, layout, buckets, bound);
  for (const LayerCost& layer : cost.layers) bound.forward_ns += layer.forward_ns;
  std::vector<double> node_ns(cost.update_ns_per_elem.size(), 0.0);
  double slowest_ns = 0.0;  // stage of one bucket
  for (const BucketCost& bucket : buckets) {
    bound.upload_ns += bucket.upload_ns;
    node_ns[bucket.node] += bucket.update_ns;
    bound.largest_update_ns = std::max(bound.largest_update_ns, bucket.update_ns);
    // Up and down it is the same elements.
    const double down_ns = bucket.upload_ns * cost.down_ns_per_elem / cost.up_ns_per_elem;
    bound.down_ns += down_ns;
    bound.largest_copies_ns = std::max(bound.largest_copies_ns, down_ns + bucket.upload_ns);
    slowest_ns = std::max({slowest_ns, bucket.update_ns, down_ns, bucket.upload_ns});
  }
  for (const plan::SegmentRange& pieces : layout.parameters) {
    const auto others = static_cast<double>(std::max(pieces.count, 1U) - 1);
    bound.split_ns = std::max(bound.split_ns, others * slowest_ns);
  }
  bound.update_ns = *std::max_element(node_ns.begin(), node_ns.end());
  bound.refresh_ns = refresh(buckets);
  bound.refresh_forward_ns = refresh_forward(buckets);
  return bound;
}

}  // namespace outboard::step_bench
