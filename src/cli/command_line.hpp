// SPDX-License-Identifier: Apache-2.0
/// What was asked for on the command line.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "update_bench/workload.hpp"

namespace outboard::cli {

/// A command line that cannot be carried out; the text is one line.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct BenchUpdate {
  std::vector<update_bench::Workload> workloads;  ///< one for each size
  std::uint32_t threads_per_node = 0;             ///< 0: every allowed physical core
  std::string json;                               ///< a file, "-" for standard output, "" for none
  std::string html;                               ///< a file, "" for none
  std::string command;                            ///< as it can be given again, without a path
};

/// "1e8" or "100000000". @throws UsageError quoting what is no whole number of parameters.
[[nodiscard]] std::uint64_t parse_count(std::string_view text);

/// Before time is spent on what could then not be kept. Nothing for "" and "-".
/// @throws UsageError naming a file that cannot be written.
void require_writable(const std::string& path);
/// @throws UsageError as require_writable().
void write_file(const std::string& path, const std::string& text);

/// With '?' for control characters, which a name or value out of a file would write over the
/// terminal.
[[nodiscard]] std::string printable(const std::string& text);

}  // namespace outboard::cli
