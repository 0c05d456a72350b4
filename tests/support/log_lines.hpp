// SPDX-License-Identifier: Apache-2.0
/// What a log sink was given, for tests to look through.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "outboard/config.hpp"

namespace outboard::testing {

/// Keeps what a sink is given.
class LogLines {
 public:
  [[nodiscard]] LogSink sink() const {
    return [lines = lines_](LogLevel level, std::string_view text) {
      const std::lock_guard lock(lines->mutex);
      lines->entries.emplace_back(level, text);
    };
  }
  /// Lines of warning or worse that hold every one of `words`.
  [[nodiscard]] std::vector<std::string> warning_lines(
      const std::vector<std::string>& words) const {
    const std::lock_guard lock(lines_->mutex);
    std::vector<std::string> out;
    for (const auto& [level, text] : lines_->entries) {
      const auto has = [&text = text](const auto& word) {
        return text.find(word) != std::string::npos;
      };
      if (level != LogLevel::info && std::ranges::all_of(words, has)) out.push_back(text);
    }
    return out;
  }
  /// How many those are.
  [[nodiscard]] std::size_t warnings(const std::vector<std::string>& words) const {
    return warning_lines(words).size();
  }
  /// Every line of any level, oldest first.
  [[nodiscard]] std::vector<std::string> texts() const {
    const std::lock_guard lock(lines_->mutex);
    std::vector<std::string> out;
    for (const auto& line : lines_->entries) out.push_back(line.second);
    return out;
  }
  void clear() {
    const std::lock_guard lock(lines_->mutex);
    lines_->entries.clear();
  }
  /// Lines that hold a newline or nothing at all.
  [[nodiscard]] std::size_t broken_lines() const {
    const std::lock_guard lock(lines_->mutex);
    return static_cast<std::size_t>(std::ranges::count_if(lines_->entries, [](const auto& line) {
      return line.second.empty() || line.second.find('\n') != std::string::npos;
    }));
  }
  [[nodiscard]] std::string all() const {
    const std::lock_guard lock(lines_->mutex);
    std::string text;
    for (const auto& line : lines_->entries) text += line.second + "\n";
    return text;
  }

 private:
  struct Lines {
    std::mutex mutex;
    std::vector<std::pair<LogLevel, std::string>> entries;
  };
  std::shared_ptr<Lines> lines_ = std::make_shared<Lines>();
};

}  // namespace outboard::testing
