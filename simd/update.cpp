// SPDX-License-Identifier: Apache-2.0
#include "simd/update.hpp"

#include <variant>

namespace outboard::simd {

std::uint64_t update(const UpdateShard& shard, const RuleScalars& scalars,
                     const UpdateOptions& options) noexcept {
  return std::visit([&](const auto& rule) { return update_rule(shard, rule, options); }, scalars);
}

}  // namespace outboard::simd
