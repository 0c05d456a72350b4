// SPDX-License-Identifier: Apache-2.0
/// What add_parameter() refuses of a parameter by itself.
#pragma once

#include <cstddef>
#include <string>

#include "device/backend.hpp"
#include "outboard/engine.hpp"
#include "outboard/error.hpp"

namespace outboard::engine {

[[noreturn]] void refuse(const std::string& name, const std::string& what,
                         ErrorCode code = ErrorCode::invalid_argument);

/// @throws Error naming the parameter and the field. `groups`: how many there are.
void check_parameter(const ParameterSpec& spec, std::size_t groups, device::Backend& backend);

}  // namespace outboard::engine
