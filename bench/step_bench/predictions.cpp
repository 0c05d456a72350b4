// SPDX-License-Identifier: Apache-2.0
#include "step_bench/predictions.hpp"

#include <algorithm>
#include <array>

namespace outboard::step_bench {
namespace {

constexpr std::uint32_t kCalibrationSteps = 3;
/// Copies below are the gate's scalars.
constexpr std::uint64_t kSmallBytes = 65536;
constexpr std::uint32_t kMicroBatches = 3;

struct Shape {
  const char* name;
  std::uint64_t params;  ///< of a layer
  double forward_us, backward_us;
  double link_bytes_per_s;
};

/// Kernels last so long that a thread which wakes late is lost in them. What the host is given to
/// do is as fast as the machine is.
constexpr std::array kShapes = {Shape{"compute", 1'000'000, 36e3, 72e3, 8e9},
                                Shape{"link", 1'000'000, 24e3, 48e3, 0.6e9},
                                Shape{"update", 3'000'000, 18e3, 36e3, 8e9}};

Workload workload_of(const Shape& shape, std::uint32_t micro_batches) {
  return {.layers = 12,
          .params = shape.params,
          .forward_us = shape.forward_us,
          .backward_us = shape.backward_us,
          .link_down_bytes_per_s = shape.link_bytes_per_s,
          .link_up_bytes_per_s = shape.link_bytes_per_s,
          .device_bytes_per_s = 20e9,
          .micro_batches = micro_batches,
          .steps = 6};
}

double busy_us(const Timeline& recording, TimelineRow row, auto matches) {
  double us = 0.0;
  for (const TimelineSpan& span : recording.spans) {
    if (span.row == row && matches(span)) us += span.end_us - span.start_us;
  }
  return us;
}

/// Of copies as large as a bucket.
double link_rate(const Timeline& recording, TimelineRow row, double otherwise) {
  const auto large = [](const TimelineSpan& span) { return span.bytes >= kSmallBytes; };
  double bytes = 0.0;
  for (const TimelineSpan& span : recording.spans) {
    if (span.row == row && large(span)) bytes += static_cast<double>(span.bytes);
  }
  const double us = busy_us(recording, row, large);
  return us > 0.0 ? bytes * 1e6 / us : otherwise;
}

std::uint32_t nodes_of(const Timeline& recording) {
  std::uint32_t nodes = 1;
  for (const TimelineSpan& span : recording.spans) {
    if (span.row == TimelineRow::node) nodes = std::max(nodes, span.node + 1);
  }
  return nodes;
}

}  // namespace

std::vector<PredictedCase> predicted_cases() {
  std::vector<PredictedCase> cases;
  for (const Shape& shape : kShapes) {
    for (const std::uint32_t micro_batches : {0U, kMicroBatches}) {
      for (const Way& way : all_ways()) {
        // These two differ from `exact` behind the gate only.
        const bool slow = way.schedule == Schedule::serial || way.schedule == Schedule::blocking;
        if (micro_batches > 0 && slow) continue;
        cases.push_back({shape.name, workload_of(shape, micro_batches), &way});
      }
    }
  }
  return cases;
}

double PredictedResult::median_us() const {
  std::vector<double> sorted = steps_us;
  std::ranges::sort(sorted);
  return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
}

PlanningMachine measured_machine(const Timeline& recording, const Workload& workload,
                                 const Way& way, std::uint32_t steps) {
  PlanningMachine machine = planning_machine(workload);
  machine.link_down_bytes_per_s =
      link_rate(recording, TimelineRow::link_down, machine.link_down_bytes_per_s);
  machine.link_up_bytes_per_s =
      link_rate(recording, TimelineRow::link_up, machine.link_up_bytes_per_s);
  const auto rate = [&](TimelineRow row, double elems, double otherwise, auto matches) {
    const double us = busy_us(recording, row, matches);
    return us > 0.0 && elems > 0.0 ? elems * steps * 1e6 / us : otherwise;
  };
  const auto kind = [](SpanKind wanted) {
    return [wanted](const TimelineSpan& span) { return span.kind == wanted; };
  };
  const auto all = static_cast<double>(workload.total_params());
  const double resident = all * way.device_fraction(workload);
  const std::uint32_t nodes = nodes_of(recording);
  const double each = (all - resident) / nodes;
  const double passes = workload.passes();
  machine.node_elems_per_s.assign(nodes, machine.node_elems_per_s.front());
  const bool sums = workload.micro_batches > 0;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    const auto here = [&](SpanKind wanted) {
      return [=](const TimelineSpan& span) { return span.node == node && span.kind == wanted; };
    };
    double& update = machine.node_elems_per_s[node];
    update = rate(TimelineRow::node, each, update, here(SpanKind::update));
    if (!sums) continue;
    machine.node_sums_per_s.push_back(
        rate(TimelineRow::node, each * passes, 3.0 * update, here(SpanKind::sum)));
  }
  // An update reads a sum of 4 bytes in place of 2, a norm likewise; the first addition of a step
  // moves 6 bytes, the others 10.
  const TimelineRow device = TimelineRow::compute;
  machine.device_elems_per_s = rate(device, resident * (sums ? 30.0 / 28.0 : 1.0),
                                    machine.device_elems_per_s, kind(SpanKind::update));
  machine.norm_elems_per_s =
      rate(device, sums ? 2.0 * resident : all, machine.norm_elems_per_s, kind(SpanKind::norm));
  machine.device_sums_per_s =
      rate(device, resident * (passes - 0.4), machine.device_sums_per_s,
           [](const TimelineSpan& span) { return span.name == "accumulate"; });
  return machine;
}

PredictedResult predict_and_measure(const PredictedCase& c, Clock clock) {
  validate(c.workload);
  PredictedResult result;
  result.of = c;
  const bool real = clock == Clock::real;
  StepTrainer trainer(c.workload, *c.way, real ? sim::Mode::threads : sim::Mode::virtual_time);
  trainer.start_recording();
  trainer.turn(kCalibrationSteps);
  result.machine =
      real ? measured_machine(trainer.recording(), c.workload, *c.way, kCalibrationSteps)
           : planning_machine(c.workload);
  result.predicted_us =
      plan_step(planned_model(c.workload), result.machine, config_of(*c.way, c.workload),
                planned_placement(*c.way, c.workload))
          .step_us;
  trainer.start_recording();
  trainer.turn(c.workload.steps);
  for (const StepSpans& step :
       split_into_periods(trainer.recording(), c.workload, *c.way, trainer.layers())) {
    result.steps_us.push_back(step.period.step);
  }
  return result;
}

}  // namespace outboard::step_bench
