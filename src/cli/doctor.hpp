// SPDX-License-Identifier: Apache-2.0
/// `outboard doctor`: what of this machine helps, costs or stops a trainer, and what to do.
#pragma once

#include <string>
#include <vector>

#include "inspect/checks.hpp"

namespace CLI {
class App;
}

namespace outboard::cli {

struct DoctorWords {
  inspect::Question question;
  std::string json;  ///< a file, "-" for standard output, "" for none
};

/// @return the subcommand.
CLI::App* add_doctor(CLI::App& app, DoctorWords& words);
/// Prints. @return the exit status: 1 if a check fails. @throws UsageError.
int run(const DoctorWords& words);

/// A line for each check with " OK ", "WARN" or "FAIL" in brackets, below it the remedy; a line of
/// counts. At most 80 columns wide but for names and paths that are longer.
[[nodiscard]] std::string doctor_text(const std::vector<inspect::Check>& checks);
[[nodiscard]] std::string doctor_json(const std::vector<inspect::Check>& checks);

}  // namespace outboard::cli
