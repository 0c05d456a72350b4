// SPDX-License-Identifier: Apache-2.0
/// Steps drawn at random, of every shape that a schedule has to cope with, and what the closed
/// formulas of docs/architecture.md say about them. Nothing here runs the simulator.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/model_layout.hpp"
#include "plan/plan.hpp"

namespace outboard::plan::testing {

enum class Shape : std::uint8_t { even, uneven, tied_embedding, one_huge, many_tiny };
inline constexpr std::array kShapes = {Shape::even, Shape::uneven, Shape::tied_embedding,
                                       Shape::one_huge, Shape::many_tiny};

struct RandomStep {
  ModelLayout layout;
  Rates rates;
  StepTimes times;
  std::vector<BucketPlace> places;  ///< all on the host
  std::uint64_t bucket_elems = 0;
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  double between(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() >> 11) * 0x1p-53;
  }
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

 private:
  std::mt19937_64 random_;
};

inline std::uint64_t draw_elems(Draw& draw, Shape shape, std::size_t index, std::size_t count) {
  switch (shape) {
    case Shape::even:
      return 65536;
    case Shape::uneven:
      return 1 + draw.below(300000);
    case Shape::tied_embedding:
      return index == 0 ? 400000 + draw.below(400000) : 20000 + draw.below(60000);
    case Shape::one_huge:
      return index == count / 2 ? 2000000 : 1000 + draw.below(50000);
    case Shape::many_tiny:
      return 1 + draw.below(3000);
  }
  return 1;
}

/// Nanoseconds per element, so that each of compute, updates and link is the slowest at times.
inline StepTimes draw_times(Draw& draw, Shape shape, const std::vector<std::uint64_t>& elems) {
  StepTimes times;
  const double forward_ns = draw.between(0.2, 3.0);
  const double backward_ns = draw.between(0.5, 6.0);
  const auto factor = [&] { return shape == Shape::even ? 1.0 : draw.between(0.3, 1.7); };
  for (std::uint32_t i = 0; i < elems.size(); ++i) {
    const auto n = static_cast<double>(elems[i]);
    times.forward.push_back({n * forward_ns * factor() * 1e-3, i});
    times.backward.push_back({n * backward_ns * factor() * 1e-3, i});
  }
  if (shape == Shape::tied_embedding) {  // used once more at the end of forward
    const auto n = static_cast<double>(elems[0]);
    times.forward.push_back({n * forward_ns * 1e-3, 0});
    times.backward.push_back({n * backward_ns * 1e-3, 0});
  }
  std::reverse(times.backward.begin(), times.backward.end());
  return times;
}

inline Rates draw_rates(Draw& draw, Shape shape, std::uint32_t nodes) {
  Rates rates;
  rates.link_down_bytes_per_s = 2e9 / draw.between(0.2, 4.0);
  rates.link_up_bytes_per_s = 2e9 / draw.between(0.2, 4.0);
  const double update_ns = draw.between(0.2, 6.0);
  for (std::uint32_t n = 0; n < nodes; ++n) {
    const double uneven = shape == Shape::even ? 1.0 : draw.between(0.6, 1.4);
    rates.node_elems_per_s.push_back(1e9 / (update_ns * nodes * uneven));
  }
  rates.device_elems_per_s = 1e9 / draw.between(0.02, 0.4);
  rates.norm_elems_per_s = draw.below(2) == 0 ? 0.0 : 1e9 / draw.between(0.002, 0.02);
  rates.copy_us = draw.below(2) == 0 ? 0.0 : draw.between(0.5, 10.0);
  rates.kernel_us = draw.below(2) == 0 ? 0.0 : draw.between(0.5, 5.0);
  return rates;
}

inline std::size_t draw_count(Draw& draw, Shape shape) {
  return shape == Shape::many_tiny ? 50 + draw.below(300) : 2 + draw.below(40);
}

/// Buckets of 16-bit parameters.
inline ModelLayout layout_of(const std::vector<std::uint64_t>& elems, std::uint64_t bucket_elems,
                             const std::vector<double>& node_weights) {
  std::vector<ParameterShape> shapes;
  for (const std::uint64_t count : elems) shapes.push_back({count, DType::f16});
  return make_layout(shapes, bucket_elems * 2, node_weights);
}

inline RandomStep draw_step(std::uint64_t seed, Shape shape, std::size_t parameters,
                            std::uint64_t bucket_elems) {
  Draw draw(seed);
  RandomStep step;
  step.bucket_elems = bucket_elems;
  std::vector<std::uint64_t> elems;
  for (std::size_t i = 0; i < parameters; ++i) {
    elems.push_back(draw_elems(draw, shape, i, parameters));
  }
  const auto nodes = static_cast<std::uint32_t>(1 + draw.below(4));
  step.rates = draw_rates(draw, shape, nodes);
  step.times = draw_times(draw, shape, elems);
  step.layout = layout_of(elems, bucket_elems, step.rates.node_elems_per_s);
  for (const Bucket& bucket : step.layout.buckets) step.places.push_back({Home::host, bucket.node});
  return step;
}

/// The same step with whole parameters, whose gradients the engine adds up.
inline RandomStep with_sums(RandomStep step, std::uint32_t micro_batches) {
  std::vector<ParameterShape> shapes;
  for (const SegmentRange& range : step.layout.parameters) {
    std::uint64_t elems = 0;
    for (std::uint32_t k = range.first; k < range.first + range.count; ++k) {
      elems += step.layout.segments[k].elems;
    }
    shapes.push_back({elems, DType::f16, true});
  }
  step.layout = make_layout(shapes, step.bucket_elems * 2, step.rates.node_elems_per_s);
  step.places.clear();
  for (const Bucket& bucket : step.layout.buckets) step.places.push_back({Home::host, bucket.node});
  step.times.micro_batches = micro_batches;
  step.rates.device_sums_per_s =
      step.rates.device_elems_per_s * kUpdateBytesPerElem / static_cast<double>(kSumBytesPerElem);
  return step;
}

/// What the formulas are made of; copies with their fixed cost.
struct Formula {
  double forward_us = 0.0;
  double backward_us = 0.0;  ///< and the norms, which share the device
  double copies_end_us = 0.0;
  double gate_us = 0.0;  ///< the gate's own copy
  double update_us = 0.0, upload_us = 0.0, download_us = 0.0;
  double unpack_us = 0.0;  ///< kernels that spread packed weights
  double largest_update_us = 0.0, largest_upload_us = 0.0, largest_download_us = 0.0;
  double refresh_forward_us = 0.0;
  [[nodiscard]] bool copies_outstanding() const { return copies_end_us > backward_us; }
  [[nodiscard]] double serial_us() const {
    return std::max(copies_end_us, backward_us) + gate_us + update_us + upload_us + forward_us;
  }
  [[nodiscard]] double exact_us() const {
    return std::max(copies_end_us, backward_us) + gate_us + refresh_forward_us +
           (copies_outstanding() ? largest_update_us : 0.0);
  }
};

struct FormulaInput {
  const RandomStep& step;
  std::vector<double> update_us, upload_us, unpack_us, forward_us;  ///< per bucket
};

inline double copy_us(const RandomStep& step, double bytes, double rate) {
  return step.rates.copy_us + bytes * 1e6 / rate;
}

/// Bytes of the copy that a segment's gradient sets off, `packed_left` of its bucket's packed ones
/// being left; 0: none. What is packed leaves with the last of its bucket.
inline double bytes_down(const RandomStep& step, const Segment& segment,
                         std::vector<std::uint32_t>& packed_left) {
  const Bucket& bucket = step.layout.buckets[segment.bucket];
  if (!bucket.packs(segment)) return 2.0 * static_cast<double>(segment.elems);
  if (--packed_left[segment.bucket] > 0) return 0.0;
  return 2.0 * static_cast<double>(bucket.packed_elems);
}

/// Of the kernel that takes a parameter's norm. A packed gradient is written as well as read.
inline double norm_us(const RandomStep& step, const SegmentRange& range) {
  double elems = 0.0;
  for (std::uint32_t k = range.first; k < range.first + range.count; ++k) {
    const Segment& segment = step.layout.segments[k];
    const double times = step.layout.buckets[segment.bucket].packs(segment) ? 2.0 : 1.0;
    elems += times * static_cast<double>(segment.elems);
  }
  return step.rates.kernel_us + duration_us(elems, step.rates.norm_elems_per_s);
}

/// Gradients leave in the order of backward, each when it is there (packed ones: when they are
/// packed) and the link is free.
inline void work_out_backward(const RandomStep& step, Formula& out) {
  std::vector<std::size_t> last(step.layout.parameters.size(), 0);
  const auto& backward = step.times.backward;
  for (std::size_t i = 0; i < backward.size(); ++i) {
    if (backward[i].parameter != kNoParameter) last[backward[i].parameter] = i;
  }
  std::vector<std::uint32_t> packed_left;
  for (const Bucket& bucket : step.layout.buckets) packed_left.push_back(bucket.packed_segments);
  double now = 0.0;
  double norms_end = 0.0;
  for (std::size_t i = 0; i < backward.size(); ++i) {
    now = std::max(now, norms_end) + backward[i].us;
    norms_end = now;
    if (backward[i].parameter == kNoParameter) continue;
    const SegmentRange range = step.layout.parameters[backward[i].parameter];
    if (last[backward[i].parameter] != i || range.count == 0) continue;
    norms_end += norm_us(step, range);
    for (std::uint32_t k = range.first; k < range.first + range.count; ++k) {
      const Segment& segment = step.layout.segments[k];
      const double bytes = bytes_down(step, segment, packed_left);
      if (bytes == 0.0) continue;
      const double us = copy_us(step, bytes, step.rates.link_down_bytes_per_s);
      const bool packed = step.layout.buckets[segment.bucket].packs(segment);
      out.copies_end_us = std::max(out.copies_end_us, packed ? norms_end : now) + us;
      out.download_us += us;
      out.largest_download_us = std::max(out.largest_download_us, us);
    }
  }
  out.backward_us = norms_end;
  out.gate_us =
      copy_us(step, 24.0 * static_cast<double>(last.size()), step.rates.link_down_bytes_per_s);
}

inline FormulaInput per_bucket(const RandomStep& step) {
  FormulaInput in{step, {}, {}, {}, {}};
  for (std::size_t b = 0; b < step.layout.buckets.size(); ++b) {
    const Bucket& bucket = step.layout.buckets[b];
    const auto elems = static_cast<double>(bucket.elems);
    in.update_us.push_back(elems * 1e6 / step.rates.node_elems_per_s[step.places[b].node]);
    const bool packs = bucket.packed_segments > 0;
    const std::uint32_t copies = bucket.segments - bucket.packed_segments + (packs ? 1 : 0);
    in.unpack_us.push_back(packs ? step.rates.kernel_us +
                                       duration_us(2.0 * static_cast<double>(bucket.packed_elems),
                                                   step.rates.norm_elems_per_s)
                                 : 0.0);
    in.upload_us.push_back(copies * step.rates.copy_us +
                           elems * 2e6 / step.rates.link_up_bytes_per_s);
  }
  in.forward_us.assign(step.layout.buckets.size(), 0.0);
  std::vector<bool> seen(step.layout.parameters.size(), false);
  for (const ComputePiece& piece : step.times.forward) {
    const SegmentRange range = step.layout.parameters[piece.parameter];
    // Used again: refreshed already, so it follows what came last.
    const std::uint32_t bucket = seen[piece.parameter]
                                     ? static_cast<std::uint32_t>(in.forward_us.size()) - 1
                                     : step.layout.segments[range.first + range.count - 1].bucket;
    in.forward_us[bucket] += piece.us;
    seen[piece.parameter] = true;
  }
  return in;
}

/// max over k <= i of: updates of k's node up to k, then uploads k..i, then forwards from i on,
/// each behind the kernel that spreads its bucket's weights.
inline double refresh_forward(const FormulaInput& in) {
  const std::size_t count = in.update_us.size();
  std::vector<double> forwards(count + 1, 0.0);
  for (std::size_t i = count; i-- > 0;) {
    forwards[i] = forwards[i + 1] + in.forward_us[i] + in.unpack_us[i];
  }
  std::vector<double> node_us(in.step.rates.node_elems_per_s.size(), 0.0);
  double worst = 0.0;
  for (std::size_t k = 0; k < count; ++k) {
    double time = node_us[in.step.places[k].node] += in.update_us[k];
    for (std::size_t i = k; i < count; ++i) {
      time += in.upload_us[i];
      worst = std::max(worst, time + forwards[i]);
    }
  }
  return worst;
}

inline Formula work_out(const RandomStep& step) {
  Formula out;
  work_out_backward(step, out);
  const FormulaInput in = per_bucket(step);
  std::vector<double> node_us(step.rates.node_elems_per_s.size(), 0.0);
  for (std::size_t b = 0; b < in.update_us.size(); ++b) {
    node_us[step.places[b].node] += in.update_us[b];
    out.upload_us += in.upload_us[b];
    out.unpack_us += in.unpack_us[b];
    out.forward_us += in.forward_us[b];
    out.largest_update_us = std::max(out.largest_update_us, in.update_us[b]);
    out.largest_upload_us = std::max(out.largest_upload_us, in.upload_us[b]);
  }
  out.update_us = *std::max_element(node_us.begin(), node_us.end());
  out.refresh_forward_us = refresh_forward(in);
  return out;
}

}  // namespace outboard::plan::testing
