// SPDX-License-Identifier: Apache-2.0
/// A group as the engine keeps it, and what may take its place.
#pragma once

#include <string>

#include "outboard/rules.hpp"

namespace outboard::optim {

struct Group {
  Rule rule;
  GroupOptions options;
};

/// Why `next` may not take the place of `now` in a group; "" if it may. A group keeps its rule, and
/// with it the streams of its state.
[[nodiscard]] std::string refusal_to_replace(const Rule& now, const Rule& next);

/// Whether two settings of one rule differ in nothing, or in `lr` alone.
[[nodiscard]] bool same_but_for_lr(const Rule& a, const Rule& b) noexcept;

}  // namespace outboard::optim
