// SPDX-License-Identifier: Apache-2.0
/// An enumeration of C with a value that it has not: what any C program can pass, and a cast of C++
/// cannot be trusted to.
#pragma once

#include <cstring>

namespace outboard::testing {

template <class Enum>
Enum raw(int value) {
  static_assert(sizeof(Enum) == sizeof(int));
  Enum out{};
  std::memcpy(&out, &value, sizeof(out));
  return out;
}

}  // namespace outboard::testing
