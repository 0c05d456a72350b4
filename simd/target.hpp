// SPDX-License-Identifier: Apache-2.0
/// Which instruction set the kernels use. Default: the best this CPU has; the environment variable
/// OUTBOARD_SIMD (scalar, avx2, avx512, neon, sve) forces another.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace outboard::simd {

/// Names of the targets that this build has and this CPU runs, best first; "scalar" is always
/// there.
[[nodiscard]] std::vector<std::string> supported_targets();
/// The one in use.
[[nodiscard]] std::string_view active_target() noexcept;
/// Forces a target for the whole process; "" goes back to the default. Not while kernels run.
/// @return false, changing nothing, if the name is not among supported_targets().
bool force_target(std::string_view name);
/// "" or what is wrong with the value of OUTBOARD_SIMD (which is then ignored).
[[nodiscard]] std::string environment_problem();

}  // namespace outboard::simd
