// SPDX-License-Identifier: Apache-2.0
/// Which devices this build can drive.
#pragma once

#include <span>
#include <string_view>

namespace outboard::device {

/// "sim", the software GPU, first; then the names of other devices' back-ends.
[[nodiscard]] std::span<const std::string_view> built_backends() noexcept;

}  // namespace outboard::device
