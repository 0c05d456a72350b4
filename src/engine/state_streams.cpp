// SPDX-License-Identifier: Apache-2.0
#include "engine/state_streams.hpp"

#include <algorithm>
#include <cmath>

#include "core/show_number.hpp"
#include "outboard/error.hpp"

namespace outboard::engine {
namespace {

[[noreturn]] void refuse(const char* call, const StreamOwner& owner, const std::string& what) {
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + ": parameter '" + owner.input.name + "' " + what);
}

std::string joined(std::span<const std::string_view> names) {
  std::string all;
  for (const std::string_view name : names) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

void require_finite(const StreamOwner& owner, const Engine::StateSource& source) {
  const auto bad =
      std::ranges::find_if_not(source.values, [](float value) { return std::isfinite(value); });
  if (bad == source.values.end()) return;
  refuse("write_state()", owner,
         "would get " + core::show_number(*bad) + " at element " +
             std::to_string(bad - source.values.begin()) + " of '" + std::string(source.stream) +
             "'; nothing was written");
}

}  // namespace

std::size_t stream_index(const char* call, const StreamOwner& owner, std::string_view stream,
                         std::size_t elems) {
  const auto names = optim::stream_names(owner.group);
  const auto found = std::ranges::find(names, stream);
  if (found == names.end()) {
    refuse(call, owner,
           "has no stream '" + std::string(stream) + "'; it is updated by " +
               std::string(rule_name(owner.group.rule)) + " and has " + joined(names));
  }
  if (elems != owner.input.elems) {
    refuse(call, owner,
           "has " + std::to_string(owner.input.elems) + " elements and a span has " +
               std::to_string(elems) + "; give spans of that size, or empty ones");
  }
  return static_cast<std::size_t>(found - names.begin());
}

std::vector<std::size_t> stream_indices(const StreamOwner& owner,
                                        std::span<const Engine::StateSource> sources) {
  std::vector<std::size_t> indices;
  for (const Engine::StateSource& source : sources) {
    indices.push_back(stream_index("write_state()", owner, source.stream, source.values.size()));
    require_finite(owner, source);
  }
  return indices;
}

}  // namespace outboard::engine
