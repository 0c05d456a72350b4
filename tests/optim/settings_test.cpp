// SPDX-License-Identifier: Apache-2.0
/// Each setting's borders, and that a refusal names field, value and what is allowed.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "outboard/config.hpp"
#include "support/expect_error.hpp"

namespace outboard::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

/// The refusal's first half, whole: no digit more and none less.
std::string is_value(std::string_view field, std::string_view value) {
  return std::string(field) + " is " + std::string(value) + "; ";
}

struct Case {
  const char* field;
  const char* value;  ///< as the text shows it
  std::string_view allowed;
  AdamW settings;
};

TEST(AdamWSettings, OutOfRangeAreNamedWithValueAndRange) {
  const std::vector<Case> cases = {
      {"AdamW::lr", "-0.5", "at least 0", {.lr = -0.5}},
      {"AdamW::lr", "nan", "finite", {.lr = kNan}},
      {"AdamW::lr", "inf", "finite", {.lr = kInfinity}},
      {"AdamW::lr", "1e+308", "3.4e38", {.lr = 1e308}},
      {"AdamW::lr", "-1e-09", "at least 0", {.lr = -1e-9}},
      {"AdamW::beta1", "1", "[0, 1)", {.beta1 = 1.0}},
      {"AdamW::beta1", "-0.1", "[0, 1)", {.beta1 = -0.1}},
      {"AdamW::beta1", "nan", "[0, 1)", {.beta1 = kNan}},
      {"AdamW::beta2", "1", "[0, 1)", {.beta2 = 1.0}},
      {"AdamW::beta2", "-0.1", "[0, 1)", {.beta2 = -0.1}},
      {"AdamW::beta2", "nan", "[0, 1)", {.beta2 = kNan}},
      {"AdamW::eps", "0", "1e-15", {.eps = 0.0}},
      {"AdamW::eps", "9e-16", "at least 1e-15", {.eps = 0.9e-15}},
      {"AdamW::eps", "nan", "1e-15", {.eps = kNan}},
      {"AdamW::eps", "inf", "finite", {.eps = kInfinity}},
      {"AdamW::weight_decay", "-0.1", "at least 0", {.weight_decay = -0.1}},
      {"AdamW::weight_decay", "nan", "finite", {.weight_decay = kNan}},
      {"AdamW::weight_decay", "inf", "finite", {.weight_decay = kInfinity}},
  };
  for (const Case& c : cases) {
    const std::string found = is_value(c.field, c.value);
    SCOPED_TRACE(found);
    expect_error(ErrorCode::invalid_config, {found, "allowed", c.allowed},
                 [&] { c.settings.validate(); });
  }
}

TEST(AdamWSettings, BordersAreAllowed) {
  for (const AdamW& settings :
       {AdamW{}, AdamW{.lr = 0.0}, AdamW{.beta1 = 0.0, .beta2 = 0.0}, AdamW{.eps = 1e-15},
        AdamW{.beta1 = std::nextafter(1.0, 0.0), .beta2 = std::nextafter(1.0, 0.0)},
        AdamW{.eps = 1.0}, AdamW{.weight_decay = 10.0}}) {
    EXPECT_NO_THROW(settings.validate());
  }
}

void expect_refused(std::string_view field, std::string_view value,
                    const std::function<void(LossScaling&)>& change) {
  LossScaling settings;
  change(settings);
  const std::string found = is_value(field, value);
  SCOPED_TRACE(found);
  expect_error(ErrorCode::invalid_config, {found, "allowed"}, [&] { settings.validate(); });
  Config config;
  config.loss_scaling = settings;
  expect_error(ErrorCode::invalid_config, {found, "allowed"}, [&] { config.validate(); });
}

TEST(LossScalingSettings, OutOfRangeAreNamedWithValueAndRange) {
  expect_refused("initial_scale", "3", [](auto& s) { s.initial_scale = 3.0; });
  expect_refused("initial_scale", "-2", [](auto& s) { s.initial_scale = -2.0; });
  expect_refused("initial_scale", "nan", [](auto& s) { s.initial_scale = kNan; });
  expect_refused("initial_scale", "inf", [](auto& s) { s.initial_scale = kInfinity; });
  expect_refused("min_scale", "131072", [](auto& s) { s.min_scale = 131072.0; });
  expect_refused("max_scale", "32768", [](auto& s) { s.max_scale = 32768.0; });
  expect_refused("initial_scale", "1e-09", [](auto& s) { s.initial_scale = 1e-9; });
  expect_refused("growth_interval", "0", [](auto& s) { s.growth_interval = 0; });
  expect_refused("give_up_after", "0", [](auto& s) { s.give_up_after = 0; });
}

TEST(LossScalingSettings, AStartAboveTheMaximumNeedsALargerMaximum) {
  LossScaling settings{.initial_scale = 0x1p32};
  expect_error(ErrorCode::invalid_config, {"max_scale", "initial_scale"},
               [&] { settings.validate(); });
  settings.max_scale = 0x1p32;
  EXPECT_NO_THROW(settings.validate());
  EXPECT_NO_THROW(
      (LossScaling{.initial_scale = 1.0, .min_scale = 1.0, .max_scale = 1.0}.validate()));
}

}  // namespace
}  // namespace outboard::testing
