// SPDX-License-Identifier: Apache-2.0
/// The kinds of operators that one suite of tests holds against the double-precision reference.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "ops.hpp"

namespace gpt::test {

struct OpsFlavour {
  std::string name;
  /// Operators that take the host's memory. Null: `why_not`.
  std::function<std::unique_ptr<Ops>(const GptShape&)> make;
  /// Gradients of logits are rounded to FP16 before they are multiplied.
  bool rounds_logits = false;
  std::string why_not;
};
inline void PrintTo(const OpsFlavour& flavour, std::ostream* out) {
  *out << flavour.name;
}

/// Each test binary has its own.
[[nodiscard]] std::vector<OpsFlavour> ops_flavours();

}  // namespace gpt::test
