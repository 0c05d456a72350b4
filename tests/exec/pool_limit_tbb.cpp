// SPDX-License-Identifier: Apache-2.0
#include <oneapi/tbb/global_control.h>

#include "exec/pool_limit.hpp"

namespace outboard::testing {

struct PoolLimit::Control {
  tbb::global_control limit;
};

// The calling thread counts as one.
PoolLimit::PoolLimit(std::size_t workers)
    : control_(new Control{{tbb::global_control::max_allowed_parallelism, workers + 1}}) {}
PoolLimit::~PoolLimit() = default;

}  // namespace outboard::testing
