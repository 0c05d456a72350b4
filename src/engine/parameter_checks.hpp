// SPDX-License-Identifier: Apache-2.0
/// What is refused of a parameter by itself.
#pragma once

#include <cstddef>
#include <string>

#include "device/backend.hpp"
#include "outboard/engine.hpp"
#include "outboard/error.hpp"

namespace outboard::engine {

/// `who`: "add_parameter(): parameter 'w'".
[[noreturn]] void refuse(const std::string& who, const std::string& what,
                         ErrorCode code = ErrorCode::invalid_argument);

/// @throws Error naming the parameter and the field. `groups`: how many there are.
void check_parameter(const std::string& who, const ParameterSpec& spec, std::size_t groups,
                     device::Backend& backend);

struct WeightRange {
  const void* data = nullptr;
  std::uint64_t elems = 0;
  DType dtype = DType::f16;
};
/// @throws Error for an address that no such weight can have.
void check_weight(const std::string& who, const WeightRange& weight, device::Backend& backend);

/// @throws Error{invalid_config} naming the hyper-parameter.
void validate(const Rule& rule);

}  // namespace outboard::engine
