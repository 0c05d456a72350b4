// SPDX-License-Identifier: Apache-2.0
/// From the public description of parameters to the layout's own.
#pragma once

#include <span>
#include <vector>

#include "outboard/planning.hpp"
#include "plan/model_layout.hpp"

namespace outboard::plan {

/// `whole`: of every parameter, as with Accumulate::host.
[[nodiscard]] inline std::vector<ParameterShape> shapes_of(
    std::span<const PlannedParameter> parameters, bool whole) {
  std::vector<ParameterShape> shapes;
  shapes.reserve(parameters.size());
  for (const PlannedParameter& parameter : parameters) {
    shapes.push_back({parameter.elems, parameter.dtype, whole});
  }
  return shapes;
}

}  // namespace outboard::plan
