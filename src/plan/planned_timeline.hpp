// SPDX-License-Identifier: Apache-2.0
/// From the simulator's timeline to the public one.
#pragma once

#include <span>

#include "outboard/timeline.hpp"
#include "plan/cost_model.hpp"
#include "plan/simulate.hpp"

namespace outboard::plan {

/// `times` are those that were simulated: they name the parameters of pieces of work.
[[nodiscard]] Timeline public_timeline(std::span<const TimelineEntry> entries,
                                       const StepTimes& times);

}  // namespace outboard::plan
