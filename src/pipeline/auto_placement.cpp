// SPDX-License-Identifier: Apache-2.0
#include "pipeline/auto_placement.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/planner.hpp"

namespace outboard::pipeline {
namespace {

/// A prediction this far off is wrong.
constexpr double kWrong = 0.10;
/// A move must shorten the step by this much, or the next change of speed would undo it.
constexpr double kWorth = 0.02;
/// Steps in a row that a prediction must miss; twice as many after each time that planning again
/// has changed nothing.
constexpr std::uint32_t kPatience = 4;
constexpr std::uint32_t kMostPatience = 1024;
/// The first has nothing to wait for and its memory is cold.
constexpr std::uint32_t kSeenSteps = 2;

}  // namespace

AutoPlacement::AutoPlacement(Flow& flow, plan::StepSchedule schedule, plan::Rates rates,
                             std::size_t ring_slots)
    : flow_(flow),
      schedule_(schedule),
      rates_(std::move(rates)),
      timer_(flow),
      node_cost_(flow.executor.nodes(), 0),
      ring_slots_(static_cast<std::uint32_t>(ring_slots)),
      patience_(kPatience) {
  flow.node_sums.clear();
  for (std::uint32_t node = 0; node < flow.executor.nodes(); ++node) {
    busy_ns_.push_back(flow.executor.busy_ns(node));
    if (flow.options.micro_batches > 0) flow.node_sums.push_back({.seen_ns = busy_ns_.back()});
  }
  rates_.node_sums_per_s.assign(flow.node_sums.size(), 0.0);
  for (const plan::Bucket& bucket : flow.layout.buckets) {
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < bucket.segments; ++i) {
      const plan::Segment& segment = flow.layout.segments[bucket.first_segment + i];
      const UpdateBytes& each = flow.parameters[segment.parameter].update_bytes;
      bytes += segment.elems * (each.measure + each.apply);
    }
    cost_.push_back(std::max<std::uint64_t>(1, bytes / exec::kBytesPerCostElem));
  }
}

void AutoPlacement::step_ends() {
  timer_.step_ends();
  sampled_ = applied_in_a_row_ >= kSeenSteps && timer_.step_us().has_value();
  if (!sampled_) return;
  measured_us_ = *timer_.step_us();
  if (!planned_) return;
  off_ = std::abs(measured_us_ - predicted_us_) > kWrong * predicted_us_ ? off_ + 1 : 0;
}

/// What the nodes have done since is the last update, with all that belongs to it, and the sums of
/// this step.
void AutoPlacement::nodes_idle() {
  const auto rate = [](std::uint64_t elems, std::int64_t busy_ns) {
    return busy_ns > 0 ? static_cast<double>(elems) * 1e9 / static_cast<double>(busy_ns) : 0.0;
  };
  for (std::uint32_t node = 0; node < busy_ns_.size(); ++node) {
    const std::int64_t now = flow_.executor.busy_ns(node);
    std::int64_t busy_ns = now - std::exchange(busy_ns_[node], now);
    if (!flow_.node_sums.empty()) {
      Flow::NodeSums& sums = flow_.node_sums[node];
      if (sums.elems > 0) rates_.node_sums_per_s[node] = rate(sums.elems, sums.busy_ns);
      busy_ns -= sums.busy_ns;
      sums = {.seen_ns = now};
    }
    if (applied_in_a_row_ == 0 || node_cost_[node] == 0) continue;
    const double share = 1000.0 / (1000.0 + flow_.options.rest_permille);
    rates_.node_elems_per_s[node] = share * rate(node_cost_[node], busy_ns);
  }
}

void AutoPlacement::applied() {
  applied_in_a_row_ += 1;
  std::ranges::fill(node_cost_, 0);
  for (std::size_t i = 0; i < flow_.buckets.size(); ++i) {
    if (flow_.buckets[i].home == plan::Home::host)
      node_cost_[flow_.layout.buckets[i].node] += cost_[i];
  }
}

bool AutoPlacement::due() const noexcept {
  return sampled_ && (!planned_ || off_ >= patience_);
}

plan::ModelLayout AutoPlacement::layout() const {
  plan::ModelLayout layout = flow_.layout;
  for (std::size_t i = 0; i < cost_.size(); ++i) layout.buckets[i].cost_elems = cost_[i];
  return layout;
}

/// A node without room for a bucket, or too slow for one, has nothing to be measured with. The plan
/// would take its rate of 0 for an instant one.
plan::Rates AutoPlacement::rates_in_use() const {
  plan::Rates rates = rates_;
  rates.node_elems_per_s.clear();
  rates.node_sums_per_s.clear();
  for (std::size_t node = 0; node < rates_.node_elems_per_s.size(); ++node) {
    if (flow_.layout.node_elems[node] == 0) continue;
    rates.node_elems_per_s.push_back(rates_.node_elems_per_s[node]);
    if (!rates_.node_sums_per_s.empty()) {
      rates.node_sums_per_s.push_back(rates_.node_sums_per_s[node]);
    }
  }
  return rates.node_elems_per_s.empty() ? rates_ : rates;
}

double AutoPlacement::predict(const plan::StepModel& model,
                              const std::vector<plan::Home>& homes) const {
  std::vector<plan::BucketPlace> places;
  for (std::size_t i = 0; i < homes.size(); ++i) {
    places.push_back({homes[i], flow_.layout.buckets[i].node});
  }
  return plan::simulate(model, rates_, places, schedule_).step_us;
}

std::optional<AutoPlacement::Choice> AutoPlacement::choose(std::uint64_t budget_bytes) {
  std::optional<plan::StepTimes> times = timer_.times(rates_);
  if (!times) return {};
  times->ring_slots = ring_slots_;
  const plan::ModelLayout layout = this->layout();
  const plan::StepModel model = plan::make_step_model(layout, *times);
  const plan::Policy policy{
      .kind = plan::PolicyKind::automatic, .streaming = false, .schedule = schedule_};
  const std::uint64_t sum_bytes = flow_.options.micro_batches > 0 ? sizeof(float) : 0;
  const plan::Plan found = plan::plan(layout, rates_in_use(), *times,
                                      {budget_bytes, flow_.state_bytes().most + sum_bytes}, policy);
  Choice choice;
  for (const plan::BucketPlace& place : found.buckets) choice.homes.push_back(place.home);
  choice.step_us = predict(model, choice.homes);
  choice.now_us = predict(model, flow_.homes());
  const std::vector<plan::Home> nobody(flow_.buckets.size(), plan::Home::host);
  choice.host_us = flow_.resident_count > 0 ? predict(model, nobody) : choice.now_us;
  choice.worth_a_move = choice.step_us < (1.0 - kWorth) * choice.now_us;
  return choice;
}

void AutoPlacement::moved(const Choice& choice) {
  planned_ = true;
  predicted_us_ = choice.step_us;
  applied_in_a_row_ = 0;
  sampled_ = false;
  off_ = 0;
  patience_ = kPatience;
}

void AutoPlacement::stayed(const Choice& choice) {
  if (planned_) patience_ = std::min(2 * patience_, kMostPatience);
  planned_ = true;
  predicted_us_ = choice.now_us;
  off_ = 0;
}

void AutoPlacement::failed(const Choice& choice) {
  stayed(choice);
  if (flow_.resident_count == 0) predicted_us_ = choice.host_us;
  restarted();
}

}  // namespace outboard::pipeline
