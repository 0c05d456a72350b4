// SPDX-License-Identifier: Apache-2.0
#include "exec/pool_limit.hpp"

namespace outboard::testing {

struct PoolLimit::Control {};

PoolLimit::PoolLimit(std::size_t /*workers*/) {}
PoolLimit::~PoolLimit() = default;

}  // namespace outboard::testing
