// SPDX-License-Identifier: Apache-2.0
/// Which streams of memory make up the optimizer state of a rule.
#pragma once

#include <array>
#include <cstddef>

namespace outboard::optim {

struct StateStream {
  const char* purpose;  ///< as the ledger names it
  std::size_t bytes_per_elem;
};

/// AdamW's streams, in the order in which leases hand them out. 12 bytes per parameter.
inline constexpr std::array<StateStream, 3> kAdamWState = {{
    {"master weight", 4},
    {"exp_avg", 4},
    {"exp_avg_sq", 4},
}};

}  // namespace outboard::optim
