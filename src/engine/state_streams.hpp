// SPDX-License-Identifier: Apache-2.0
/// A parameter's state by the names of its streams, for Engine::read_state() and write_state().
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "optim/group.hpp"
#include "outboard/engine.hpp"
#include "pipeline/step.hpp"

namespace outboard::engine {

/// One committed parameter; borrows.
struct StreamOwner {
  const pipeline::ParameterInput& input;
  const optim::Group& group;
};

/// Which of the parameter's own streams that is. `call`: "read_state()".
/// @throws Error{invalid_argument} if it has none of that name and size.
[[nodiscard]] std::size_t stream_index(const char* call, const StreamOwner& owner,
                                       std::string_view stream, std::size_t elems);

/// The same for each source, whose values must be finite.
[[nodiscard]] std::vector<std::size_t> stream_indices(const StreamOwner& owner,
                                                      std::span<const Engine::StateSource> sources);

}  // namespace outboard::engine
