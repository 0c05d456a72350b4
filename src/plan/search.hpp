// SPDX-License-Identifier: Apache-2.0
/// Looks for the homes of a few groups of buckets that make a step fastest.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"
#include "plan/simulation.hpp"

namespace outboard::plan {

struct SearchLimits {
  std::uint64_t budget_bytes = 0;  ///< on the device
  bool streaming = true;
  std::uint64_t events = 0;  ///< simulated at most, within one simulation
};

/// Descends from several starting points by moving one group, then two at a time, until nothing
/// helps or the events are used up.
class Search {
 public:
  /// References must outlive the search.
  Search(const StepModel& model, const Rates& rates, StepSchedule schedule,
         const SearchLimits& limits);

  /// Places of the groups, the fastest found; all on the host if nothing is faster.
  [[nodiscard]] const std::vector<BucketPlace>& run();
  [[nodiscard]] std::uint64_t events() const { return events_; }

 private:
  /// Less is better: the step, then what it costs besides.
  struct Score {
    double step_us = 0.0;
    double effort = 0.0;  ///< busy time of the resources and bytes, to prefer the idler of equals
    [[nodiscard]] bool better_than(const Score& other) const;
  };

  [[nodiscard]] bool exhausted() const { return events_ >= limits_.events; }
  [[nodiscard]] Score evaluate(std::vector<BucketPlace>& places);
  void descend(std::vector<BucketPlace> places, bool pairs);
  bool improve_by_one(std::vector<BucketPlace>& places, Score& score);
  bool improve_by_two(std::vector<BucketPlace>& places, Score& score);
  bool try_places(std::vector<BucketPlace>& places, Score& score);
  [[nodiscard]] bool fits(const std::vector<BucketPlace>& places) const;
  [[nodiscard]] std::vector<BucketPlace> filled(Home home, bool from_front) const;
  [[nodiscard]] std::uint32_t homes() const { return limits_.streaming ? kHomes : kHomes - 1; }

  const StepModel& model_;
  const Rates& rates_;
  SearchLimits limits_;
  Simulation simulation_;
  std::uint64_t events_ = 0;
  std::vector<BucketPlace> best_;
  Score best_score_;
};

}  // namespace outboard::plan
