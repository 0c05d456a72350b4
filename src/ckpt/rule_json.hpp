// SPDX-License-Identifier: Apache-2.0
/// A group's rule, hyper-parameters and options as JSON, for the manifest.
#pragma once

#include "ckpt/json.hpp"
#include "optim/group.hpp"

namespace outboard::ckpt {

[[nodiscard]] nlohmann::ordered_json group_to_json(const optim::Group& group);
/// @throws Error{bad_checkpoint} for an unknown rule or a value that its validate() refuses.
[[nodiscard]] optim::Group group_from_json(const JsonRef& json);

}  // namespace outboard::ckpt
