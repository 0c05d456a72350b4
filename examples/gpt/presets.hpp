// SPDX-License-Identifier: Apache-2.0
/// Model sizes by name.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "shape.hpp"

namespace gpt {

struct Preset {
  const char* name;
  const char* about;
  GptShape shape;  ///< its vocabulary is set by the kind of tokens
};

/// From the smallest to the largest.
[[nodiscard]] std::span<const Preset> presets();
/// nullptr if there is none of that name.
[[nodiscard]] const Preset* find_preset(std::string_view name);
/// "tiny, demo, ...".
[[nodiscard]] std::string preset_names();

}  // namespace gpt
