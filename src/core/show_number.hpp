// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace outboard::core {

/// The shortest decimal that reads back as `value`: "65536", "0.0006", "1e-08".
[[nodiscard]] std::string show_number(double value);

}  // namespace outboard::core
