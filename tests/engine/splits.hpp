// SPDX-License-Identifier: Apache-2.0
/// Shares of a model's state that whole buckets can make, for engines that keep them on the device.
#pragma once

#include <cmath>
#include <cstdint>
#include <variant>
#include <vector>

#include "plan/model_layout.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {

/// Whether gradient buffers must stay untouched until step().
inline bool reads_in_place(const Config& config) {
  return config.placement != Placement::host && config.accumulate == Accumulate::trainer;
}

struct Split {
  double fraction = 0.0;             ///< of the padded elements
  std::uint64_t resident_elems = 0;  ///< without padding
  std::uint64_t host_elems = 0;
  std::uint64_t resident_padded = 0;
};

/// Whether a parameter's buckets must have one home.
inline bool moves_as_a_whole(const TinyOptions& options, const TinyParameter& parameter) {
  if (options.config.accumulate == Accumulate::host) return true;
  return !options.rules.empty() &&
         std::holds_alternative<Lamb>(options.rules.at(parameter.group).rule);
}

/// Of the model's first buckets: the one nearest to `wanted`.
inline Split nearest_split(const TinyOptions& options, double wanted) {
  std::vector<plan::ParameterShape> shapes;
  for (const TinyParameter& parameter : options.parameters) {
    shapes.push_back({parameter.elems, parameter.dtype, moves_as_a_whole(options, parameter)});
  }
  const std::vector<double> one_node = {1.0};
  const plan::ModelLayout layout = plan::make_layout(shapes, options.config.bucket_bytes, one_node);
  double padded = 0.0;
  Split all;
  for (const plan::Bucket& bucket : layout.buckets) {
    padded += static_cast<double>(bucket.padded_elems);
    all.host_elems += bucket.elems;
  }
  Split best = all;
  Split next = all;
  for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
    const plan::Bucket& bucket = layout.buckets[b];
    next.resident_padded += bucket.padded_elems;
    next.resident_elems += bucket.elems;
    next.host_elems -= bucket.elems;
    next.fraction = static_cast<double>(next.resident_padded) / padded;
    const bool last = b + 1 == layout.buckets.size();
    if (!last && layout.buckets[b + 1].unit == bucket.unit) continue;
    if (std::abs(next.fraction - wanted) < std::abs(best.fraction - wanted)) best = next;
  }
  return best;
}

/// Placement::fraction becomes one that whole buckets can make.
inline void round_fraction(TinyOptions& options) {
  if (options.config.placement != Placement::fraction) return;
  options.config.device_fraction = nearest_split(options, options.config.device_fraction).fraction;
}

}  // namespace outboard::testing
