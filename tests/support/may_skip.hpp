// SPDX-License-Identifier: Apache-2.0
/// Tests of what some systems forbid.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace outboard::testing {

/// Whether a test may be left out because the system forbids what it needs: not for root, nor where
/// CI is set, whose system must allow it. Else nobody would notice that all are left out.
inline bool may_skip() {
  return geteuid() != 0 && std::getenv("CI") == nullptr;
}

}  // namespace outboard::testing

/// In a test or a void function of one: ends it, as skipped or as failed.
#define OUTBOARD_SKIP(what)                                                   \
  do {                                                                        \
    if (::outboard::testing::may_skip()) GTEST_SKIP() << what;                \
    FAIL() << what << "; as root, or where CI is set, this must be possible"; \
  } while (false)
