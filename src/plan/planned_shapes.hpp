// SPDX-License-Identifier: Apache-2.0
/// From the public description of parameters to the layout's own.
#pragma once

#include <span>
#include <vector>

#include "outboard/planning.hpp"
#include "plan/model_layout.hpp"

namespace outboard::plan {

[[nodiscard]] inline std::vector<ParameterShape> shapes_of(
    std::span<const PlannedParameter> parameters) {
  std::vector<ParameterShape> shapes;
  shapes.reserve(parameters.size());
  for (const PlannedParameter& parameter : parameters) {
    shapes.push_back({parameter.elems, parameter.dtype});
  }
  return shapes;
}

}  // namespace outboard::plan
