// SPDX-License-Identifier: Apache-2.0
/// Models to save and load, and machines to do so on, drawn from a seed.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/drawn_options.hpp"
#include "engine/every_rule.hpp"

namespace outboard::testing {

/// Of any rule and dtype; which is the seed's.
inline TinyOptions model_of(std::uint64_t seed) {
  TinyOptions options = small_model();
  Draw draw(mix_bits(seed, 1, 2));
  const std::vector<NamedRule> rules = every_rule();
  TinyRule first = rules[seed % rules.size()].group;
  TinyRule second = rules[draw.below(rules.size())].group;
  if (draw.coin()) first.options = random_with_average();
  options.rules = {first, second};
  const bool one_dtype = draw.coin();
  for (std::size_t i = 0; i < options.parameters.size(); ++i) {
    const DType dtype = kEveryDType[one_dtype ? seed % 3 : draw.below(3)];
    options.parameters[i].dtype = dtype;
  }
  options.injected.clear();  // bits of one dtype
  options.config.loss_scaling.growth_interval = 3;
  const DType dtype = options.parameters[3].dtype;
  const std::uint32_t infinite = dtype == DType::f16    ? 0x7C00U
                                 : dtype == DType::bf16 ? 0x7F80U
                                                        : 0x7F800000U;
  for (const std::uint64_t step : {3U, 7U}) {
    options.injected.push_back({.step = step, .parameter = 3, .element = 12, .bits = infinite});
  }
  return options;
}

/// Another machine, placement and trainer for the same model.
inline TinyOptions elsewhere(TinyOptions options, std::uint64_t seed) {
  Draw draw(seed);
  draw_device(draw, options.device);
  draw_config(draw, options.config);
  if (options.config.placement == Placement::device_streamed && has_lamb(options)) {
    options.config.placement = Placement::device_resident;
  }
  if (options.config.placement == Placement::fraction) {
    options.config.device_fraction =
        nearest_split(options, options.config.device_fraction).fraction;
  }
  draw_trainer(draw, options);
  return options;
}

}  // namespace outboard::testing
