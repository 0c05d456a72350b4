// SPDX-License-Identifier: Apache-2.0
/// The element types of weights and gradients that must not change what a step means.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "engine/flavours.hpp"
#include "outboard/outboard.hpp"

namespace outboard::testing {

struct Precision {
  std::string name;
  DType dtype = DType::f16;
  double loss_scale = 1.0;  ///< the fixed one that tests of numbers use
  /// A step this large away from a weight of 1 is lost when it is rounded to this type.
  double lost_step = 0.0;
  std::uint16_t bits_after_100_steps = 0;  ///< of 1 - 100 * lost_step, rounded
  /// How far the loss of a small network may be from the plain optimizer's, relative.
  double loss_tolerance = 0.0;

  /// A configuration with this precision's fixed loss scale.
  [[nodiscard]] Config config() const {
    Config config;
    config.loss_scaling.dynamic = false;
    config.loss_scaling.initial_scale = loss_scale;
    return config;
  }
};

inline std::ostream& operator<<(std::ostream& out, const Precision& precision) {
  return out << precision.name;
}

inline std::vector<Precision> all_precisions() {
  return {{.name = "f16",
           .dtype = DType::f16,
           .loss_scale = 1024.0,
           .lost_step = 1e-4,
           .bits_after_100_steps = 0x3BEC,  // 0.990234375
           .loss_tolerance = 1e-5},
          {.name = "bf16",
           .dtype = DType::bf16,
           .loss_scale = 1.0,
           .lost_step = 6e-4,
           .bits_after_100_steps = 0x3F71,  // 0.94140625
           .loss_tolerance = 1e-4}};  // a weight rounded the other way moves by 8 times as much
}

using PreciseFlavour = std::tuple<Flavour, Precision>;

/// Every flavour in every precision, for INSTANTIATE_TEST_SUITE_P.
inline auto all_precise_flavours() {
  return ::testing::Combine(::testing::ValuesIn(all_flavours()),
                            ::testing::ValuesIn(all_precisions()));
}

inline std::string precise_flavour_name(const PreciseFlavour& way) {
  return std::get<0>(way).name + "_" + std::get<1>(way).name;
}

}  // namespace outboard::testing
