// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <ostream>

namespace gpt {
namespace {

constexpr const char* kToStart = "\r\x1b[K";

}  // namespace

void Progress::step(const std::string& line, bool kept) {
  if (columns_ == 0 && !kept) return;
  if (open_) out_ << kToStart;
  if (kept) {
    out_ << line << '\n';
  } else {
    out_ << line.substr(0, columns_ - 1);  // a line that wraps cannot be written over
  }
  open_ = !kept;
  out_ << std::flush;
}

void Progress::note(const std::string& line) {
  finish();
  out_ << line << '\n' << std::flush;
}

void Progress::finish() {
  if (open_) out_ << '\n';
  open_ = false;
}

std::size_t terminal_columns() {
  if (isatty(STDOUT_FILENO) == 0) return 0;
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace gpt
