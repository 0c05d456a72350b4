// SPDX-License-Identifier: Apache-2.0
#include "presets.hpp"

#include <algorithm>
#include <array>

namespace gpt {
namespace {

GptShape shape(std::size_t layers, std::size_t width, std::size_t heads, std::size_t context,
               std::size_t batch) {
  return {.layers = layers, .width = width, .heads = heads, .context = context, .batch = batch};
}

}  // namespace

std::span<const Preset> presets() {
  static const std::array<Preset, 11> all{{
      {"tiny", "seconds, for tests", shape(2, 64, 2, 64, 8)},
      {"demo", "minutes on two cores", shape(4, 192, 4, 128, 8)},
      {"small", "an hour on a desktop", shape(8, 512, 8, 256, 8)},
      {"124m", "GPT-2 small", shape(12, 768, 12, 1024, 8)},
      {"355m", "GPT-2 medium", shape(24, 1024, 16, 1024, 8)},
      {"774m", "GPT-2 large", shape(36, 1280, 20, 1024, 8)},
      {"1.5b", "GPT-2 XL", shape(48, 1600, 25, 1024, 8)},
      {"2.7b", "GPT-3 2.7B", shape(32, 2560, 32, 2048, 4)},
      {"6.7b", "GPT-3 6.7B", shape(32, 4096, 32, 2048, 4)},
      {"13b", "GPT-3 13B", shape(40, 5120, 40, 2048, 4)},
      {"30b", "OPT-30B", shape(48, 7168, 56, 2048, 4)},
  }};
  return all;
}

const Preset* find_preset(std::string_view name) {
  const auto all = presets();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Preset& p) { return p.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string preset_names() {
  std::string names;
  for (const Preset& preset : presets()) {
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  }
  return names;
}

}  // namespace gpt
