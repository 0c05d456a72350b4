// SPDX-License-Identifier: Apache-2.0
/// What was measured, as a table, as JSON, as a page.
#pragma once

#include <string>
#include <vector>

#include "update_bench/bench.hpp"

namespace outboard::cli {

struct Report {
  std::string command;
  update_bench::MachineInfo machine;
  std::vector<update_bench::Measurement> measurements;
};

/// The table is printed as it grows: head, then rows of each measurement, then the foot.
[[nodiscard]] std::string text_head(const Report& report);
[[nodiscard]] std::string text_rows(const update_bench::Measurement& measurement);
[[nodiscard]] std::string text_foot(const Report& report);

[[nodiscard]] std::string json_of(const Report& report);
/// One file, nothing loaded from elsewhere: chart and table.
[[nodiscard]] std::string html_of(const Report& report);

/// Which measurement's check failed, with both digests. "" if none did.
[[nodiscard]] std::string wrong_result(const Report& report);

/// As printf; at most 511 characters.
[[nodiscard]] __attribute__((format(printf, 1, 2))) std::string print(const char* format, ...);
/// "f16 to bf16 stochastic, apart": what a workload does beside its rule and size.
[[nodiscard]] std::string formats_of(const update_bench::Workload& workload);
/// "100,000,000" or "50,050,000 in 10,000 tensors".
[[nodiscard]] std::string size_of(const update_bench::Measurement& measurement);
/// "100,000,000".
[[nodiscard]] std::string grouped(std::uint64_t number);
/// "97 % huge pages" or "pages unknown".
[[nodiscard]] std::string pages_of(const update_bench::Measurement& measurement);
[[nodiscard]] std::string threads_of(const update_bench::MachineInfo& machine);

}  // namespace outboard::cli
