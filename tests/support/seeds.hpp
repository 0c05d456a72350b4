// SPDX-License-Identifier: Apache-2.0
/// Tests that draw what they try from a seed. OUTBOARD_TEST_SEED=<n> replays one seed alone;
/// OUTBOARD_TEST_EVERYTHING makes tests that can take minutes try all that they are able to.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace outboard::testing {

inline std::optional<std::uint64_t> chosen_seed() {
  const char* chosen = std::getenv("OUTBOARD_TEST_SEED");
  if (chosen == nullptr) return {};
  return std::strtoull(chosen, nullptr, 10);
}

inline bool try_everything() {
  return std::getenv("OUTBOARD_TEST_EVERYTHING") != nullptr;
}

/// Calls `each` for the seeds from 1 to `count`, or for the chosen one, until a test fails; its
/// seed is in the trace. Returns whether these were all.
template <class Each>
bool for_each_seed(std::uint64_t count, Each each) {
  const std::optional<std::uint64_t> chosen = chosen_seed();
  const std::uint64_t first = chosen.value_or(1);
  const std::uint64_t last = chosen.value_or(count);
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(last));
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                       "replay: OUTBOARD_TEST_SEED=" + std::to_string(seed));
    each(seed);
    if (::testing::Test::HasFailure()) return false;
  }
  return !chosen;
}

}  // namespace outboard::testing
