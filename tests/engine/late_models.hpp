// SPDX-License-Identifier: Apache-2.0
/// Models whose parameters come late, and the ways in which they run.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/flavours.hpp"
#include "engine/late_parameters.hpp"

namespace outboard::testing {

inline std::vector<Flavour> late_ways() {
  std::vector<Flavour> out = all_flavours();
  const std::vector<Flavour> open = open_flavours();
  out.insert(out.end(), open.begin(), open.end());
  for (Flavour flavour : {Flavour{.name = "virtual_sums"}, open.front()}) {
    flavour.accumulate = Accumulate::host;
    if (flavour.schedule == Schedule::open) flavour.name = "virtual_open_sums";
    out.push_back(flavour);
  }
  out.push_back(Flavour{.name = "virtual_half"});
  out.back().placement = Placement::fraction;
  out.back().device_fraction = 0.5;
  out.push_back(out.back());
  out.back().name = "virtual_half_bounce_sums";
  out.back().pinned_slots = 2;
  out.back().accumulate = Accumulate::host;
  return out;
}

/// For parameters that leave no half.
inline std::vector<Flavour> whole_ways() {
  std::vector<Flavour> out = late_ways();
  std::erase_if(out, [](const Flavour& way) { return way.placement == Placement::fraction; });
  return out;
}

/// Equal parameters of two buckets each.
inline constexpr std::uint64_t kElems = 8192;

inline TinyOptions equal_parameters(const Flavour& flavour, std::size_t count) {
  TinyOptions options;
  options.device = flavour.device();
  Config config;
  config.max_grad_norm = 1.0;
  config.loss_scaling.initial_scale = 64.0;
  options.config = flavour.apply(config);
  options.groups = {AdamW{.lr = 1e-2, .weight_decay = 0.1}};
  options.parameters.resize(count);
  for (TinyParameter& parameter : options.parameters) parameter.elems = kElems;
  options.digest = false;
  return options;
}

/// Sizes of which each commit() has two halves of two buckets or parameters.
inline TinyOptions mixed_parameters(const Flavour& flavour) {
  TinyOptions options = equal_parameters(flavour, 0);
  options.groups = {AdamW{.lr = 1e-2, .weight_decay = 0.1}, AdamW{.lr = 3e-3, .beta2 = 0.95}};
  const std::array<std::uint64_t, 8> sizes = {8192, 8192, 8192, 8192, 8192, 8192, 4096, 4096};
  add_parameters(options, sizes);
  return options;
}
/// Whole, on the host: the share of one that has all from the start may be another.
inline TinyOptions plainly(TinyOptions options) {
  options.config.placement = Placement::host;
  options.config.device_fraction = 0.0;
  return options;
}
inline const Growths kPairs = {{0, 2}, {2, 4}, {3, 6}, {5, 8}};

}  // namespace outboard::testing
