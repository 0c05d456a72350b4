// SPDX-License-Identifier: Apache-2.0
/// Settings as a log shows them.
#pragma once

#include <string>

#include "optim/group.hpp"

namespace outboard::optim {

/// Algorithm, how it decays, and every hyper-parameter, without a newline.
[[nodiscard]] std::string describe(const Rule& rule);
/// The same, and what the group has beside its rule.
[[nodiscard]] std::string describe(const Group& group);

}  // namespace outboard::optim
