// SPDX-License-Identifier: Apache-2.0
#include "plan/planner.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/show_number.hpp"
#include "outboard/error.hpp"
#include "plan/interleave.hpp"
#include "plan/search.hpp"

namespace outboard::plan {
namespace {

/// Groups that the search moves. More find finer splits and leave fewer trials for each: 24 give
/// steps that are 4 % longer.
constexpr std::size_t kGroups = 64;
/// Bounds the time of a search, at about 70 ns each. Forty times as many shorten a step by 1 %.
constexpr std::uint64_t kSearchEvents = 250'000;

void require_sane(const Rates& rates, const Policy& policy) {
  const auto require_rate = [](double value, const char* name) {
    if (value >= 0.0 && std::isfinite(value)) return;
    throw Error(ErrorCode::invalid_argument, std::string("plan(): Rates::") + name + " is " +
                                                 core::show_number(value) +
                                                 "; it must be 0 (instant) or positive");
  };
  require_rate(rates.link_down_bytes_per_s, "link_down_bytes_per_s");
  require_rate(rates.link_up_bytes_per_s, "link_up_bytes_per_s");
  require_rate(rates.device_elems_per_s, "device_elems_per_s");
  require_rate(rates.norm_elems_per_s, "norm_elems_per_s");
  require_rate(rates.device_sums_per_s, "device_sums_per_s");
  require_rate(rates.copy_us, "copy_us");
  require_rate(rates.kernel_us, "kernel_us");
  for (const double rate : rates.node_elems_per_s) require_rate(rate, "node_elems_per_s");
  for (const double rate : rates.node_sums_per_s) require_rate(rate, "node_sums_per_s");
  if (policy.device_fraction >= 0.0 && policy.device_fraction <= 1.0) return;
  throw Error(ErrorCode::invalid_argument, "plan(): Policy::device_fraction is " +
                                               core::show_number(policy.device_fraction) +
                                               "; it must be within [0, 1]");
}

std::uint64_t total_elems(const StepModel& model) {
  std::uint64_t sum = 0;
  for (const StepModel::Bucket& bucket : model.buckets) sum += bucket.padded_elems;
  return sum;
}

/// Consecutive buckets of one home: [first, end).
struct Unit {
  std::size_t first = 0, end = 0;
  std::uint64_t padded_elems = 0;
};

std::vector<Unit> units_of(const StepModel& model) {
  std::vector<Unit> units;
  for (std::size_t b = 0; b < model.buckets.size(); ++b) {
    if (b == 0 || model.buckets[b].unit != model.buckets[b - 1].unit) units.push_back({b, b, 0});
    units.back().end = b + 1;
    units.back().padded_elems += model.buckets[b].padded_elems;
  }
  return units;
}

void settle(const Unit& unit, Home home, std::vector<BucketPlace>& places) {
  for (std::size_t b = unit.first; b < unit.end; ++b) places[b].home = home;
}

/// Resident from the first one needed on: these leave the wait that nothing hides. Then one unit
/// more or one less, whatever comes nearer.
std::vector<BucketPlace> places_of_fraction(const StepModel& model, double fraction) {
  std::vector<BucketPlace> places(model.buckets.size());
  const double wanted = fraction * static_cast<double>(total_elems(model));
  double have = 0.0;
  for (const Unit& unit : units_of(model)) {
    const auto elems = static_cast<double>(unit.padded_elems);
    // Later and smaller ones may still fit.
    if (std::abs(have + elems - wanted) >= std::abs(have - wanted)) continue;
    have += elems;
    settle(unit, Home::device_resident, places);
  }
  return places;
}

void require_fraction(const StepModel& model, const std::vector<BucketPlace>& places,
                      const Policy& policy) {
  const double fraction = policy.device_fraction;
  double resident = 0.0;
  Unit largest;
  for (const Unit& unit : units_of(model)) {
    if (unit.padded_elems > largest.padded_elems) largest = unit;
    if (places[unit.first].home == Home::device_resident) {
      resident += static_cast<double>(unit.padded_elems);
    }
  }
  const auto total = static_cast<double>(total_elems(model));
  if (total == 0.0 || std::abs(resident / total - fraction) <= policy.fraction_tolerance) return;
  const bool one_bucket = largest.end - largest.first == 1;
  throw Error(ErrorCode::invalid_config,
              "a device fraction of " + core::show_number(fraction) + " is not within " +
                  core::show_number(std::round(1000.0 * policy.fraction_tolerance) / 10.0) +
                  " % of any choice of whole buckets: the nearest is " +
                  core::show_number(resident / total) + ", the largest " +
                  (one_bucket ? "bucket" : "parameter that moves as a whole") + " has " +
                  core::show_number(static_cast<double>(largest.padded_elems) / total) +
                  " of the state; use " +
                  (one_bucket ? "a smaller Config::bucket_bytes" : "another fraction"));
}

void require_budget(std::uint64_t needed, const DeviceMemory& memory, const std::string& what,
                    const char* smaller) {
  if (needed <= memory.budget_bytes) return;
  throw Error(ErrorCode::out_of_memory, what + " needs " + std::to_string(needed) +
                                            " bytes of device memory and the budget is " +
                                            std::to_string(memory.budget_bytes) + ": " +
                                            std::to_string(needed - memory.budget_bytes) +
                                            " bytes short; use a smaller " + smaller +
                                            " or raise the budget");
}

/// Stretches of consecutive buckets, each of which has at most its part of all elements; in each,
/// the buckets of one node together.
Grouping make_groups(const StepModel& model, const std::vector<BucketPlace>& places) {
  std::uint32_t nodes = 1;
  for (const BucketPlace& place : places) nodes = std::max(nodes, place.node + 1);
  const bool few = places.size() <= kGroups;  // each is a group
  const double most = few ? 0.0 : static_cast<double>(total_elems(model)) / kGroups * nodes;
  Grouping grouping;
  std::vector<std::uint32_t> open(nodes, UINT32_MAX);  // the stretch's group of each node
  std::uint32_t stretch = 0;
  double have = 0.0;
  for (std::size_t b = 0; b < places.size(); ++b) {
    const auto elems = static_cast<double>(model.buckets[b].padded_elems);
    if (have > 0.0 && have + elems > most) {
      open.assign(nodes, UINT32_MAX);
      stretch += 1;
      have = 0.0;
    }
    have += elems;
    std::uint32_t& group = open[places[b].node];
    if (group == UINT32_MAX) {
      group = static_cast<std::uint32_t>(grouping.stretch_of.size());
      grouping.stretch_of.push_back(stretch);
    }
    grouping.group_of.push_back(group);
  }
  return grouping;
}

/// Candidate plans and the best of them so far.
class Choice {
 public:
  Choice(const StepModel& model, const Rates& rates, StepSchedule schedule)
      : model_(model), rates_(rates), simulation_(model, rates, schedule) {}

  /// Takes the places if they are faster than those before, or the first.
  void offer(std::vector<BucketPlace> places) {
    const double step_us = simulate(places);
    if (!places_.empty() && step_us >= step_us_) return;
    places_ = std::move(places);
    step_us_ = step_us;
  }
  void replace(std::vector<BucketPlace> places) {
    step_us_ = simulate(places);
    places_ = std::move(places);
  }
  [[nodiscard]] const std::vector<BucketPlace>& places() const { return places_; }
  [[nodiscard]] double step_us() const { return step_us_; }
  [[nodiscard]] std::uint64_t events() const { return events_; }

 private:
  double simulate(std::vector<BucketPlace>& places) {
    place_on_nodes(model_, rates_, places);
    const Prediction& prediction = simulation_.run(places);
    events_ += prediction.events;
    return prediction.step_us;
  }

  const StepModel& model_;
  const Rates& rates_;
  Simulation simulation_;
  std::vector<BucketPlace> places_;
  double step_us_ = 0.0;
  std::uint64_t events_ = 0;
};

/// Uses what a choice of whole groups leaves of the budget: resident buckets in forward order.
std::vector<BucketPlace> topped_up(const StepModel& model, std::vector<BucketPlace> places,
                                   std::uint64_t budget_bytes) {
  std::uint64_t used = device_state_bytes(model, places);
  for (const Unit& unit : units_of(model)) {
    const std::uint64_t bytes = unit.padded_elems * model.state_bytes_per_elem;
    if (places[unit.first].home != Home::host || used + bytes > budget_bytes) continue;
    settle(unit, Home::device_resident, places);
    used += bytes;
  }
  return places;
}

/// The search knows no units: one that it has divided goes to the device if it fits, else to the
/// host.
std::vector<BucketPlace> with_whole_units(const StepModel& model, std::vector<BucketPlace> places,
                                          std::uint64_t budget_bytes) {
  std::vector<Unit> divided;
  for (const Unit& unit : units_of(model)) {
    const auto first = places.begin() + static_cast<std::ptrdiff_t>(unit.first);
    const auto end = places.begin() + static_cast<std::ptrdiff_t>(unit.end);
    const auto differs = [&](const BucketPlace& place) { return place.home != first->home; };
    if (std::none_of(first, end, differs)) continue;
    divided.push_back(unit);
    settle(unit, Home::host, places);
  }
  std::uint64_t used = device_state_bytes(model, places);
  for (const Unit& unit : divided) {
    const std::uint64_t bytes = unit.padded_elems * model.state_bytes_per_elem;
    if (used + bytes > budget_bytes) continue;
    settle(unit, Home::device_resident, places);
    used += bytes;
  }
  return places;
}

/// Whole buckets from the places of groups.
std::vector<BucketPlace> spread(const std::vector<BucketPlace>& found, const Grouping& grouping) {
  std::vector<BucketPlace> places;
  places.reserve(grouping.group_of.size());
  for (const std::uint32_t group : grouping.group_of) places.push_back(found[group]);
  return places;
}

/// State that is streamed takes the place of what stays, and groups of buckets show worse how well
/// it hides: half of the search goes without.
std::uint64_t choose_automatically(const StepModel& model, const Rates& rates,
                                   const DeviceMemory& memory, const Policy& policy,
                                   Choice& choice) {
  const Grouping grouping = make_groups(model, choice.places());
  const StepModel coarse = coarsen(model, grouping);
  const std::uint64_t events = policy.streaming ? kSearchEvents / 2 : kSearchEvents;
  std::uint64_t searched = 0;
  for (const bool streaming : {false, true}) {
    if (streaming && !policy.streaming) continue;
    Search search(coarse, rates, policy.schedule, {memory.budget_bytes, streaming, events});
    const std::vector<BucketPlace> places =
        with_whole_units(model, spread(search.run(), grouping), memory.budget_bytes);
    choice.offer(places);
    choice.offer(topped_up(model, places, memory.budget_bytes));
    searched += search.events();
  }
  return searched;
}

Plan make_plan(const StepModel& model, const std::vector<BucketPlace>& places) {
  Plan plan;
  plan.buckets = places;
  plan.device_bytes = device_state_bytes(model, places);
  for (std::size_t b = 0; b < places.size(); ++b) {
    const std::uint64_t elems = model.buckets[b].padded_elems;
    if (places[b].home == Home::device_resident) plan.resident_elems += elems;
    if (places[b].home == Home::device_streamed) plan.streamed_elems += elems;
  }
  return plan;
}

}  // namespace

void place_on_nodes(const StepModel& model, const Rates& rates, std::span<BucketPlace> places) {
  std::vector<std::uint64_t> elems;
  for (std::size_t b = 0; b < places.size(); ++b) {
    if (places[b].home != Home::device_resident) elems.push_back(model.buckets[b].padded_elems);
  }
  std::vector<double> weights = rates.node_elems_per_s;
  // Rates of 0 are instant nodes, as good as each other.
  const bool instant = std::ranges::any_of(weights, [](double rate) { return rate <= 0.0; });
  if (instant) weights.assign(weights.size(), 1.0);
  const std::vector<std::uint32_t> nodes = interleave(elems, weights);
  std::size_t next = 0;
  for (BucketPlace& place : places) {
    place.node = place.home == Home::device_resident ? 0 : nodes[next++];
  }
}

std::uint64_t device_state_bytes(const StepModel& model, std::span<const BucketPlace> places) {
  std::uint64_t elems = 0;
  std::uint64_t sums = 0;
  std::uint64_t largest_streamed = 0;
  for (std::size_t b = 0; b < places.size(); ++b) {
    const StepModel::Bucket& bucket = model.buckets[b];
    if (places[b].home == Home::device_resident) elems += bucket.padded_elems;
    if (places[b].home == Home::device_streamed) {
      sums += bucket.padded_elems;
      largest_streamed = std::max(largest_streamed, bucket.largest_padded_elems);
    }
  }
  return elems * model.state_bytes_per_elem + sums * model.sum_bytes_per_elem() +
         kStreamBuffers * largest_streamed * model.streamed_bytes_per_elem();
}

Plan plan(const ModelLayout& layout, const Rates& rates, const StepTimes& times,
          const DeviceMemory& memory, const Policy& policy) {
  require_sane(rates, policy);
  StepModel model = make_step_model(layout, times);
  model.state_bytes_per_elem = memory.state_bytes_per_elem;
  Choice choice(model, rates, policy.schedule);
  choice.offer(std::vector<BucketPlace>(model.buckets.size()));
  const double host_only_us = choice.step_us();
  std::uint64_t searched = 0;
  if (policy.kind == PolicyKind::fraction) {
    choice.replace(places_of_fraction(model, policy.device_fraction));
    require_fraction(model, choice.places(), policy);
    require_budget(device_state_bytes(model, choice.places()), memory,
                   "a device fraction of " + core::show_number(policy.device_fraction), "fraction");
  } else if (policy.kind == PolicyKind::streamed) {
    choice.replace(std::vector<BucketPlace>(model.buckets.size(), {Home::device_streamed, 0}));
    require_budget(device_state_bytes(model, choice.places()), memory, "streamed optimizer state",
                   "Config::bucket_bytes");
  } else if (policy.kind == PolicyKind::automatic) {
    searched = choose_automatically(model, rates, memory, policy, choice);
  }
  Plan result = make_plan(model, choice.places());
  result.step_us = choice.step_us();
  result.host_only_step_us = host_only_us;
  result.simulated_events = choice.events() + searched;
  return result;
}

}  // namespace outboard::plan
