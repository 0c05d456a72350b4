// SPDX-License-Identifier: Apache-2.0
// What a save beside training costs: docs/planning.md.
#include <algorithm>
#include <cmath>

#include "cli/plan_request.hpp"

namespace outboard::cli {

/// Updates take the state in the order in which it is written. The last of them can begin once no
/// more than the snapshot holds is left to write.
SavePlan plan_save(const PlanRequest& request, std::uint64_t state_bytes, double step_us) {
  const double rate = request.disk.value;
  const auto all = static_cast<double>(state_bytes);
  const double left = std::max(0.0, all - rate * step_us * 1e-6);
  const double copied = std::min(left, static_cast<double>(request.snapshot_bytes));
  SavePlan plan;
  plan.save_us = all / rate * 1e6;
  plan.copied_bytes = static_cast<std::uint64_t>(std::llround(copied));
  plan.copy_us = 2.0 * copied / (request.host_update.value * update_bytes(request.dtype)) * 1e6;
  plan.wait_us = (left - copied) / rate * 1e6;
  return plan;
}

}  // namespace outboard::cli
