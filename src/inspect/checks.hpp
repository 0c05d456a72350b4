// SPDX-License-Identifier: Apache-2.0
/// What of a machine helps a trainer, costs it speed, or stops it.
#pragma once

#include <string>
#include <vector>

#include "inspect/host_report.hpp"

namespace outboard::inspect {

enum class Health {
  ok,
  warn,  ///< works, and something is slower or less than it could be
  fail,  ///< something that is there cannot be used at all
};

struct Check {
  std::string name;  ///< "memory lock": lower case, at most 15 characters
  Health health = Health::ok;
  std::string found;   ///< one line
  std::string remedy;  ///< one line; "" only if there is nothing to do
};

/// In one order whatever is found; checks of what the report does not know are left out. Pure.
[[nodiscard]] std::vector<Check> checks_of(const HostReport& report);

/// "1.5 GiB", "64 KiB".
[[nodiscard]] std::string show_bytes(std::uint64_t bytes);
/// "PCIe 4.0 x16, 31.5 GB/s": what it is built for, on the lanes in use. "unknown" without lanes.
[[nodiscard]] std::string show_link(const topology::PciLink& link);

}  // namespace outboard::inspect
