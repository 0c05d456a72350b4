// SPDX-License-Identifier: Apache-2.0
#include "step_bench/bench.hpp"

#include <algorithm>
#include <memory>

namespace outboard::step_bench {
namespace {

sim::Mode mode_of(Clock clock) {
  return clock == Clock::real ? sim::Mode::threads : sim::Mode::virtual_time;
}

Period mean_of(const std::vector<StepSpans>& steps) {
  Period mean;
  const auto n = static_cast<double>(steps.size());
  for (const StepSpans& step : steps) {
    const Period& p = step.period;
    mean.step += p.step / n;
    mean.forward += p.forward / n;
    mean.backward += p.backward / n;
    mean.exposed.gradients += p.exposed.gradients / n;
    mean.exposed.gate += p.exposed.gate / n;
    mean.exposed.update += p.exposed.update / n;
    mean.exposed.weights += p.exposed.weights / n;
    mean.exposed.device += p.exposed.device / n;
    mean.exposed.host += p.exposed.host / n;
    mean.down += p.down / n;
    mean.up += p.up / n;
    mean.update += p.update / n;
    mean.device += p.device / n;
  }
  // The same in every step.
  mean.bytes_down = steps.front().period.bytes_down;
  mean.bytes_up = steps.front().period.bytes_up;
  return mean;
}

/// In real time the nodes are the machine's own.
Workload with_real_nodes(Workload workload, Clock clock, const Timeline& recording) {
  if (clock == Clock::virtual_time) return workload;
  workload.nodes = 1;
  for (const TimelineSpan& span : recording.spans) {
    workload.nodes = std::max(workload.nodes, span.node + 1);
  }
  return workload;
}

/// In real time the host is as fast as it is.
Workload with_measured_rate(Workload workload, Clock clock, const Period& mean) {
  if (clock == Clock::virtual_time || mean.update <= 0.0) return workload;
  workload.host_params_per_s = static_cast<double>(workload.total_params()) * 1e6 / mean.update;
  return workload;
}

WayResult result_of(const Workload& asked, const Way& way, Clock clock, StepTrainer& trainer) {
  WayResult result;
  result.way = &way;
  result.clock = clock;
  const Timeline recording = trainer.recording();
  const Workload here = with_real_nodes(asked, clock, recording);
  std::vector<StepSpans> steps = split_into_periods(recording, here, way, trainer.layers());
  for (const StepSpans& step : steps) result.steps_us.push_back(step.period.step);
  result.mean = mean_of(steps);
  // After the last one this program itself waits for its end.
  result.measured = std::move(steps[(steps.size() - 1) / 2].timeline);
  result.measured.name = std::string(way.name) + ", measured in " +
                         (clock == Clock::real ? "real time" : "virtual time");
  const Workload workload = with_measured_rate(here, clock, result.mean);
  result.bound_us = way.bound_ns(workload, way.device_fraction(workload)) * 1e-3;
  result.predicted =
      plan_step(planned_model(workload), planning_machine(workload), config_of(way, workload),
                planned_placement(way, workload), &result.planned);
  result.planned.name = std::string(way.name) + ", predicted" +
                        (clock == Clock::real ? " at this machine's rate" : "");
  result.digest = trainer.state_digest();
  return result;
}

void measure_virtual(const std::vector<const Way*>& ways, StepBench& out) {
  for (const Way* way : ways) {
    StepTrainer trainer(out.workload, *way, mode_of(Clock::virtual_time));
    trainer.start_recording();
    trainer.turn(out.workload.steps);
    out.results.push_back(result_of(out.workload, *way, Clock::virtual_time, trainer));
  }
}

void measure_real(const std::vector<const Way*>& ways, StepBench& out) {
  std::vector<std::unique_ptr<StepTrainer>> trainers;
  for (const Way* way : ways) {
    trainers.push_back(std::make_unique<StepTrainer>(out.workload, *way, mode_of(Clock::real)));
    trainers.back()->start_recording();
  }
  for (std::uint32_t step = 0; step < out.workload.steps; ++step) {
    for (const auto& trainer : trainers) trainer->turn(1);
  }
  for (std::size_t i = 0; i < ways.size(); ++i) {
    out.results.push_back(result_of(out.workload, *ways[i], Clock::real, *trainers[i]));
  }
}

}  // namespace

double WayResult::longest_us() const {
  return *std::ranges::max_element(steps_us);
}

double WayResult::shortest_us() const {
  return *std::ranges::min_element(steps_us);
}

double WayResult::overlap() const {
  const double all = mean.down + mean.up + mean.update + mean.device;
  return all > 0.0 ? 1.0 - mean.exposed.total() / all : 1.0;
}

bool StepBench::same_bits() const {
  return std::ranges::all_of(
      results, [&](const WayResult& result) { return result.digest == results.front().digest; });
}

StepBench measure(const Workload& workload, const std::vector<const Way*>& ways,
                  const std::vector<Clock>& clocks) {
  validate(workload);
  StepBench out;
  out.workload = workload;
  out.bound = bound_of(cost_of(workload));
  for (const Clock clock : clocks) {
    clock == Clock::real ? measure_real(ways, out) : measure_virtual(ways, out);
  }
  return out;
}

}  // namespace outboard::step_bench
