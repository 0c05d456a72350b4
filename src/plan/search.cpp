// SPDX-License-Identifier: Apache-2.0
#include "plan/search.hpp"

#include <tuple>
#include <utility>

#include "plan/planner.hpp"

namespace outboard::plan {

Search::Search(const StepModel& model, const Rates& rates, StepSchedule schedule,
               const SearchLimits& limits)
    : model_(model), rates_(rates), limits_(limits), simulation_(model, rates, schedule) {}

bool Search::Score::better_than(const Score& other) const {
  constexpr double kSame = 1e-9;
  if (step_us < other.step_us * (1.0 - kSame)) return true;
  return step_us <= other.step_us * (1.0 + kSame) && effort < other.effort * (1.0 - kSame);
}

Search::Score Search::evaluate(std::vector<BucketPlace>& places) {
  place_on_nodes(model_, rates_, places);
  const Prediction& prediction = simulation_.run(places);
  events_ += prediction.events;
  double effort = prediction.compute_us + prediction.link_down_us + prediction.link_up_us;
  for (const double us : prediction.node_us) effort += us;
  return {prediction.step_us, effort};
}

bool Search::fits(const std::vector<BucketPlace>& places) const {
  return device_state_bytes(model_, places) <= limits_.budget_bytes;
}

std::vector<BucketPlace> Search::filled(Home home, bool from_front) const {
  const std::size_t count = model_.buckets.size();
  std::vector<BucketPlace> places(count);
  for (std::size_t i = 0; i < count; ++i) {
    BucketPlace& place = places[from_front ? i : count - 1 - i];
    place.home = home;
    if (!fits(places)) place.home = Home::host;
  }
  return places;
}

const std::vector<BucketPlace>& Search::run() {
  best_ = filled(Home::host, true);
  best_score_ = evaluate(best_);
  std::vector<std::vector<BucketPlace>> starts = {best_, filled(Home::device_resident, true),
                                                  filled(Home::device_resident, false)};
  if (limits_.streaming) starts.push_back(filled(Home::device_streamed, true));
  // Each start has its turn before pairs of moves, of which there are many more, take the rest:
  // those of the best first.
  for (const auto& start : starts) descend(start, false);
  descend(best_, true);
  for (const auto& start : starts) descend(start, true);
  return best_;
}

void Search::descend(std::vector<BucketPlace> places, bool pairs) {
  Score score = evaluate(places);
  while (improve_by_one(places, score) || (pairs && improve_by_two(places, score))) {
  }
  if (!score.better_than(best_score_)) return;
  best_ = std::move(places);
  best_score_ = score;
}

/// Keeps `places` if they are better than `score`.
bool Search::try_places(std::vector<BucketPlace>& places, Score& score) {
  if (exhausted() || !fits(places)) return false;
  const Score tried = evaluate(places);
  if (!tried.better_than(score)) return false;
  score = tried;
  return true;
}

bool Search::improve_by_one(std::vector<BucketPlace>& places, Score& score) {
  bool improved = false;
  for (BucketPlace& place : places) {
    for (std::uint32_t home = 0; home < homes(); ++home) {
      const Home before = place.home;
      if (before == static_cast<Home>(home)) continue;
      place.home = static_cast<Home>(home);
      if (try_places(places, score)) {
        improved = true;
      } else {
        place.home = before;
      }
    }
  }
  return improved;
}

/// Near groups first: they compete for the same moment.
bool Search::improve_by_two(std::vector<BucketPlace>& places, Score& score) {
  for (std::size_t distance = 1; distance < places.size(); ++distance) {
    for (std::size_t i = 0; i + distance < places.size(); ++i) {
      BucketPlace& first = places[i];
      BucketPlace& second = places[i + distance];
      const auto before = std::pair(first.home, second.home);
      for (std::uint32_t pair = 0; pair < homes() * homes(); ++pair) {
        first.home = static_cast<Home>(pair / homes());
        second.home = static_cast<Home>(pair % homes());
        if (first.home == before.first || second.home == before.second) continue;
        if (try_places(places, score)) return true;
      }
      std::tie(first.home, second.home) = before;
      if (exhausted()) return false;
    }
  }
  return false;
}

}  // namespace outboard::plan
