// SPDX-License-Identifier: Apache-2.0
/// What an engine says of memory that it could not pin.
#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "outboard/outboard.hpp"

namespace outboard::testing {

/// Keeps warnings that speak of pinned host memory.
class PinningWarnings {
 public:
  [[nodiscard]] LogSink sink() {
    return [this](LogLevel level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      if (level != LogLevel::warning) return;
      if (line.find("pinned host memory") == std::string_view::npos) return;
      lines_.emplace_back(line);
    };
  }
  [[nodiscard]] std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

inline void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
  }
}

}  // namespace outboard::testing
