// SPDX-License-Identifier: Apache-2.0
/// Whether the measured kernel computes what it should: part of its result against the same part
/// computed once more on one thread, with another instruction set.
#pragma once

#include <cstdint>
#include <string>

#include "update_bench/stepper.hpp"

namespace outboard::update_bench {

struct CheckResult {
  bool equal = false;
  std::uint64_t digest = 0;    ///< of the part's state, as measured
  std::uint64_t expected = 0;  ///< the same, computed again
  std::uint64_t elems = 0;
  std::string target;  ///< the other instruction set; the same one if there is no other
};

/// Steps of a check.
inline constexpr std::uint32_t kCheckPasses = 3;

/// Compares the data after fill(normal) and run(normal, kCheckPasses) on up to 32,768 elements of
/// the first node, around the border of its first thread: state by digest, weights byte by byte.
/// Forces another SIMD target meanwhile: no kernel may run beside it.
[[nodiscard]] CheckResult check(const Stepper& stepper, const Workload& workload);

}  // namespace outboard::update_bench
