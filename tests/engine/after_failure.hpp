// SPDX-License-Identifier: Apache-2.0
/// What an engine says once a failure has ended it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/expect_error.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {

/// Fails unless the error is one of a failed device or engine and names its first cause.
inline void expect_named(const Error& error, const std::string& cause) {
  EXPECT_TRUE(error.code() == ErrorCode::device_failure || error.code() == ErrorCode::poisoned)
      << code_name(error.code()) << ": " << error.what();
  expect_words(error.what(), {cause});
}

/// Every call is refused, each with the first cause.
inline void expect_refused(TinyTrainer& trainer, const std::string& cause) {
  Engine& engine = trainer.engine();
  const ParameterId id = trainer.id(0);
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"wait", [&] { engine.wait(id, trainer.reader()); }},
      {"gradient_ready", [&] { engine.gradient_ready(id, trainer.gradient(0), trainer.writer()); }},
      {"wait_gradient_taken", [&] { engine.wait_gradient_taken(id, trainer.writer()); }},
      {"step", [&] { engine.step(); }},
      {"discard", [&] { engine.discard(); }},
      {"synchronize", [&] { engine.synchronize(); }},
      {"weights_changed", [&] { engine.weights_changed(id, trainer.reader()); }},
      {"set_placement", [&] { engine.set_placement({.placement = Placement::device_resident}); }},
      {"state_digest", [&] { (void)engine.state_digest(); }},
      {"read_state", [&] { engine.read_state(id, {}); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    const std::optional<Error> error = caught(call);
    EXPECT_TRUE(error.has_value()) << "worked after: " << cause;
    if (error) expect_named(*error, cause);
  }
}

}  // namespace outboard::testing
