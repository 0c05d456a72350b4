// SPDX-License-Identifier: Apache-2.0
/// Settings and numbers as a log shows them.
#pragma once

#include <string>

#include "outboard/config.hpp"

namespace outboard::optim {

/// The shortest decimal that reads back as `value`: "65536", "0.0006", "1e-08".
[[nodiscard]] std::string show_number(double value);

/// Algorithm, how it decays, and every hyper-parameter, without a newline.
[[nodiscard]] std::string describe(const AdamW& settings);

}  // namespace outboard::optim
