// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.hpp"

#include <charconv>
#include <cmath>
#include <fstream>
#include <system_error>

namespace outboard::cli {
namespace {

void require(const std::ofstream& out, const std::string& path) {
  if (!out) throw UsageError("cannot write " + path + "; give a file in a folder that exists");
}

}  // namespace

std::uint64_t parse_count(std::string_view text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool all = error == std::errc{} && end == text.data() + text.size();
  if (!all || !(value >= 1) || value > 1e18 || value != std::floor(value)) {
    throw UsageError("\"" + std::string(text) +
                     "\" is no number of parameters; give one such as 1e8 or 100000000");
  }
  return static_cast<std::uint64_t>(value);
}

void require_writable(const std::string& path) {
  if (path.empty() || path == "-") return;
  require(std::ofstream(path, std::ios::app), path);
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  require(out, path);
}

std::string printable(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  }
  return out;
}

}  // namespace outboard::cli
