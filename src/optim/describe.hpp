// SPDX-License-Identifier: Apache-2.0
/// Settings and numbers as a log shows them.
#pragma once

#include <string>

#include "optim/group.hpp"

namespace outboard::optim {

/// The shortest decimal that reads back as `value`: "65536", "0.0006", "1e-08".
[[nodiscard]] std::string show_number(double value);

/// Algorithm, how it decays, and every hyper-parameter, without a newline.
[[nodiscard]] std::string describe(const Rule& rule);
/// The same, and what the group has beside its rule.
[[nodiscard]] std::string describe(const Group& group);

}  // namespace outboard::optim
