// SPDX-License-Identifier: Apache-2.0
/// Runs in which parameters come one commit() after the other, and the run that has them all from
/// the start and gives them no gradient until then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/trajectory.hpp"

namespace outboard::testing {

/// From step `step` on there are `parameters`.
struct Growth {
  std::uint64_t step = 0;
  std::size_t parameters = 0;
};
/// The first is at step 0.
using Growths = std::vector<Growth>;

inline std::size_t parameters_at(const Growths& growths, std::uint64_t step) {
  std::size_t parameters = 0;
  for (const Growth& growth : growths) {
    if (growth.step <= step) parameters = growth.parameters;
  }
  return parameters;
}

/// All from the start; late ones get no gradient before their time.
inline TinyOptions all_from_the_start(TinyOptions options, const Growths& growths) {
  options.has_gradient = [growths, inner = options.has_gradient](std::uint64_t step,
                                                                 std::uint32_t i) {
    return i < parameters_at(growths, step) && (!inner || inner(step, i));
  };
  return options;
}

/// As run_trajectory(), committing as told. A digest is of what is there: none before the last
/// growth is kept.
inline Trajectory run_growing(TinyTrainer& trainer, const Growths& growths, const RunOptions& run) {
  trainer.start_with(growths.front().parameters);
  Trajectory out;
  for (std::uint64_t s = 0; s < run.steps; ++s) {
    if (const std::size_t now = parameters_at(growths, s); now > trainer.in_use()) {
      trainer.add_parameters(now);
      trainer.commit();
    }
    const bool last = s + 1 == run.steps;
    out.push_back(take_step(trainer, last || (run.digests >> (s % 64) & 1) != 0));
    if (s < growths.back().step) out.back().digest.reset();
  }
  for (std::uint64_t s = 0; s < run.steps; ++s) out[s].loss = trainer.loss(s);
  return out;
}

}  // namespace outboard::testing
