// SPDX-License-Identifier: Apache-2.0
/// The first failure of an engine, carried from wherever it happened to whoever calls next.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "outboard/error.hpp"

namespace outboard::pipeline {

/// Not thread-safe: guarded by the flow's mutex.
class FirstError {
 public:
  /// Keeps the earliest.
  void capture(ErrorCode code, const std::string& text) {
    if (!first_) first_.emplace(Cause{code, text, false});
  }

  [[nodiscard]] bool any() const noexcept { return first_.has_value(); }

  /// Of the failure, if any().
  [[nodiscard]] const std::string& text() const noexcept { return first_->text; }

  /// Throws the failure itself the first time, Error{poisoned} with its text from then on.
  void rethrow_if_any() {
    if (!first_) return;
    if (!first_->reported) {
      first_->reported = true;
      throw Error(first_->code, first_->text);
    }
    throw Error(ErrorCode::poisoned,
                "the engine is poisoned by an earlier failure and its state may be half new; "
                "load() a checkpoint or destroy it. First cause: " +
                    first_->text);
  }
  /// The caller is throwing the failure itself.
  void mark_reported() noexcept {
    if (first_) first_->reported = true;
  }

 private:
  struct Cause {
    ErrorCode code;
    std::string text;
    bool reported;
  };
  std::optional<Cause> first_;
};

}  // namespace outboard::pipeline
