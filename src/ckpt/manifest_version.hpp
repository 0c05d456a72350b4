// SPDX-License-Identifier: Apache-2.0
/// The two members of a manifest that every version of the format has, read before any rule of one
/// version is held against the rest.
#pragma once

#include <string_view>

#include "ckpt/json.hpp"

namespace outboard::ckpt {

/// Reads no further than to `format` and `format_version`, however deep the rest is nested. Leaves
/// a text that lacks them, or is no JSON, to the reader of the whole.
/// @throws Error{unsupported} naming both versions for a later one; Error{bad_checkpoint} for
/// another format.
void require_version(std::string_view text, const JsonPlace& place);

}  // namespace outboard::ckpt
