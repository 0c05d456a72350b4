// SPDX-License-Identifier: Apache-2.0
#include "step_bench/periods.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>

#include "outboard/error.hpp"

namespace outboard::step_bench {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kElementBytes = 2;

bool is_trainers(const TimelineSpan& span) {
  return span.kind == SpanKind::forward || span.kind == SpanKind::backward;
}

/// Finds the bucket of a copy by the device's end of it.
class Addresses {
 public:
  Addresses(const Workload& workload, const std::vector<LayerMemory>& layers)
      : layout_(layout_of(cost_of(workload))), layers_(layers), params_(workload.params) {}

  [[nodiscard]] std::optional<std::uint32_t> bucket_of_gradient(const void* address) const {
    return find(address, [](const LayerMemory& layer) { return layer.gradient; });
  }
  [[nodiscard]] std::optional<std::uint32_t> bucket_of_weight(const void* address) const {
    return find(address, [](const LayerMemory& layer) { return layer.weight; });
  }
  [[nodiscard]] std::size_t buckets() const { return layout_.buckets.size(); }
  /// First and last bucket of a layer.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> buckets_of(std::size_t layer) const {
    const plan::SegmentRange range = layout_.parameters[layer];
    return {layout_.segments[range.first].bucket,
            layout_.segments[range.first + range.count - 1].bucket};
  }

 private:
  template <class Start>
  [[nodiscard]] std::optional<std::uint32_t> find(const void* address, Start start) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const auto first = reinterpret_cast<std::uintptr_t>(start(layers_[i]));
      if (at < first || at >= first + params_ * kElementBytes) continue;
      const std::uint64_t element = (at - first) / kElementBytes;
      const plan::SegmentRange range = layout_.parameters[i];
      for (std::uint32_t k = range.first; k < range.first + range.count; ++k) {
        const plan::Segment& segment = layout_.segments[k];
        if (element < segment.first_element + segment.elems) return segment.bucket;
      }
    }
    return std::nullopt;
  }

  plan::ModelLayout layout_;
  const std::vector<LayerMemory>& layers_;
  std::uint64_t params_;
};

void name(TimelineSpan& span, SpanKind kind, const char* what, std::uint32_t index) {
  span.kind = kind;
  span.index = index;
  span.name = std::string(span_kind_name(kind)) + ", " + what + " " + std::to_string(index);
}

void classify(TimelineSpan& span, const Addresses& addresses) {
  if (span.row == TimelineRow::link_down) {
    if (const auto bucket = addresses.bucket_of_gradient(span.address)) {
      return name(span, SpanKind::gradient, "bucket", *bucket);
    }
    span.kind = SpanKind::gate;
    span.name = "gate";
  } else if (span.row == TimelineRow::link_up) {
    if (const auto bucket = addresses.bucket_of_weight(span.address)) {
      name(span, SpanKind::weight, "bucket", *bucket);
    }
  } else if (span.row == TimelineRow::node) {
    name(span, span.kind, "bucket", span.index);
  } else if (span.kind == SpanKind::norm || span.kind == SpanKind::update) {
    const auto bucket = span.kind == SpanKind::norm ? addresses.bucket_of_gradient(span.address)
                                                    : addresses.bucket_of_weight(span.address);
    if (bucket) name(span, span.kind, "bucket", *bucket);
  }
}

/// The trainer's kernels come in the order in which they were queued.
void number_kernels(Timeline& timeline, std::uint32_t layers) {
  std::uint32_t forwards = 0;
  std::uint32_t backwards = 0;
  for (TimelineSpan& span : timeline.spans) {
    if (span.stream != "trainer") continue;
    if (span.name == "forward") {
      name(span, SpanKind::forward, "layer", forwards++ % layers);
    } else if (span.name == "backward") {
      name(span, SpanKind::backward, "layer", layers - 1 - backwards++ % layers);
    }
  }
}

/// Tells what the device waits for at a moment of one period.
class Causes {
 public:
  Causes(const Timeline& timeline, const Addresses& addresses, const Way& way)
      : addresses_(addresses),
        waits_(way.waits),
        gated_(way.schedule != Schedule::open),
        gradient_(addresses.buckets(), 0.0),
        update_(gradient_),
        weight_(gradient_) {
    for (const TimelineSpan& span : timeline.spans) take(span);
    last_gradient_ = *std::ranges::max_element(gradient_);
    last_update_ = *std::ranges::max_element(update_);
  }

  /// Charges [from, to), in which no kernel of the trainer runs, before the kernel `next`.
  void charge(double from, double to, const TimelineSpan& next, Exposed& exposed) const {
    while (from < to) {
      double until = to;
      double& cause = cause_at(from, next, exposed, until);
      until = std::min(until, to);
      cause += until - from;
      from = until;
    }
  }

 private:
  void take(const TimelineSpan& span) {
    if (span.row == TimelineRow::compute) {
      if (!is_trainers(span)) kernels_.push_back(&span);
      return;
    }
    const auto ends = [&](std::vector<double>& of) {
      if (span.index < of.size()) of[span.index] = std::max(of[span.index], span.end_us);
    };
    if (span.kind == SpanKind::gate) gate_ = std::max(gate_, span.end_us);
    if (span.kind == SpanKind::gradient) ends(gradient_);
    if (span.kind == SpanKind::update) ends(update_);
    if (span.kind == SpanKind::weight) ends(weight_);
  }

  /// `until`: when the answer may change.
  double& cause_at(double now, const TimelineSpan& next, Exposed& exposed, double& until) const {
    for (const TimelineSpan* kernel : kernels_) {
      if (kernel->end_us <= now) continue;
      if (kernel->start_us <= now) {
        until = kernel->end_us;
        return exposed.device;
      }
      until = std::min(until, kernel->start_us);
      break;
    }
    if (next.kind == SpanKind::backward) return exposed.host;
    const auto before = [&](double end) {
      if (now >= end) return false;
      until = std::min(until, end);
      return true;
    };
    if (gated_ && before(gate_)) return exposed.gate;
    const bool phases = waits_ == Waits::phases;
    if (phases && before(last_gradient_)) return exposed.gradients;
    if (phases && before(last_update_)) return exposed.update;
    for (std::uint32_t b = first_needed(next); b <= last_needed(next); ++b) {
      if (now >= weight_[b] && now >= update_[b] && now >= gradient_[b]) continue;
      if (before(gradient_[b])) return exposed.gradients;
      if (before(update_[b])) return exposed.update;
      if (before(weight_[b])) return exposed.weights;
    }
    return before(gate_) ? exposed.gate : exposed.host;
  }
  [[nodiscard]] std::uint32_t first_needed(const TimelineSpan& next) const {
    return waits_ == Waits::own ? addresses_.buckets_of(next.index).first : 0;
  }
  [[nodiscard]] std::uint32_t last_needed(const TimelineSpan& next) const {
    return waits_ == Waits::own ? addresses_.buckets_of(next.index).second
                                : static_cast<std::uint32_t>(addresses_.buckets()) - 1;
  }

  const Addresses& addresses_;
  Waits waits_;
  bool gated_;                                ///< nothing is updated before the gate opens
  std::vector<const TimelineSpan*> kernels_;  ///< the engine's, in order
  double gate_ = 0.0;
  std::vector<double> gradient_, update_, weight_;  ///< ends, by bucket
  double last_gradient_ = 0.0, last_update_ = 0.0;
};

void measure_busy(const Timeline& timeline, std::uint32_t nodes, Period& period) {
  std::vector<double> node_us(nodes, 0.0);
  for (const TimelineSpan& span : timeline.spans) {
    const double us = span.end_us - span.start_us;
    if (span.kind == SpanKind::forward) period.forward += us;
    if (span.kind == SpanKind::backward) period.backward += us;
    if (span.row == TimelineRow::compute && !is_trainers(span)) period.device += us;
    if (span.row == TimelineRow::node) {
      if (span.node >= node_us.size()) node_us.resize(span.node + 1, 0.0);
      node_us[span.node] += us;
    }
    if (span.row == TimelineRow::link_down) {
      period.down += us;
      period.bytes_down += span.bytes;
    }
    if (span.row == TimelineRow::link_up) {
      period.up += us;
      period.bytes_up += span.bytes;
    }
  }
  period.update = *std::ranges::max_element(node_us);
}

StepSpans make_step(const Timeline& all, double start_us, double end_us, const Addresses& addresses,
                    const Workload& workload, const Way& way) {
  StepSpans step;
  const auto from = std::ranges::lower_bound(all.spans, start_us, {}, &TimelineSpan::start_us);
  const auto to = std::ranges::lower_bound(all.spans, end_us, {}, &TimelineSpan::start_us);
  step.timeline.spans.assign(from, to);
  for (TimelineSpan& span : step.timeline.spans) {
    span.start_us -= start_us;
    span.end_us -= start_us;
  }
  step.period.step = end_us - start_us;
  measure_busy(step.timeline, workload.nodes, step.period);
  const Causes causes(step.timeline, addresses, way);
  double free_us = 0.0;
  for (const TimelineSpan& span : step.timeline.spans) {
    if (!is_trainers(span)) continue;
    causes.charge(free_us, span.start_us, span, step.period.exposed);
    free_us = span.end_us;
  }
  return step;
}

}  // namespace

std::vector<StepSpans> split_into_periods(const Timeline& recording, const Workload& workload,
                                          const Way& way, const std::vector<LayerMemory>& layers) {
  const Addresses addresses(workload, layers);
  Timeline all = recording;
  number_kernels(all, workload.layers);
  for (TimelineSpan& span : all.spans) classify(span, addresses);
  std::vector<StepSpans> steps;
  double forward_end = kNever;
  bool backward_since = false;
  std::uint32_t passes = 0;  // since forward_end
  for (const TimelineSpan& span : all.spans) {
    backward_since = backward_since || span.kind == SpanKind::backward;
    if (span.kind != SpanKind::forward || span.index != workload.layers - 1) continue;
    const bool begins_turn = !backward_since;
    backward_since = false;
    if (!begins_turn && ++passes < workload.passes()) continue;
    if (!begins_turn && forward_end < span.end_us) {
      steps.push_back(make_step(all, forward_end, span.end_us, addresses, workload, way));
    }
    forward_end = span.end_us;
    passes = 0;
  }
  return steps;
}

}  // namespace outboard::step_bench
