// SPDX-License-Identifier: Apache-2.0
/// The step lines: a live one on a terminal, plain ones elsewhere.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>

namespace gpt {

class Progress {
 public:
  /// `columns` of the terminal that `out` is, where a line may be written over; 0: it is none.
  Progress(std::ostream& out, std::size_t columns) : out_(out), columns_(columns) {}

  /// Shows a step's line; one that is not to be `kept` only on a terminal, until the next.
  void step(const std::string& line, bool kept);
  /// A line of its own.
  void note(const std::string& line);
  /// Ends a line that is still open.
  void finish();

 private:
  std::ostream& out_;
  std::size_t columns_;
  bool open_ = false;
};

/// Of the terminal on standard output; 0 if it is none.
[[nodiscard]] std::size_t terminal_columns();

}  // namespace gpt
