// SPDX-License-Identifier: Apache-2.0
/// Structs of the C interface that begin with their size, and the C++ values they stand for.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "capi/guarded.hpp"
#include "outboard/engine.hpp"

namespace outboard::capi {

/// What the caller gave over the defaults. @throws Error{invalid_argument} for a size that no
/// version of the struct has had.
template <class Struct>
Struct read_struct(const char* call, const char* name, const Struct* given, Struct defaults) {
  require_pointer(call, name, given);
  const std::size_t size = given->struct_size;
  if (size < 2 * sizeof(std::size_t) || size > sizeof(Struct)) {
    refuse(call, std::string("`") + name + "->struct_size` is " + std::to_string(size) +
                     " and at most " + std::to_string(sizeof(Struct)) +
                     " here; set it with the struct's outboard_..._init()");
  }
  std::memcpy(&defaults, given, size);
  return defaults;
}

/// For a struct that a call will fill.
/// @throws Error{invalid_argument} as read_struct(), so that nothing is done for a result that has
/// no room.
template <class Struct>
void check_room(const char* call, const char* name, const Struct* out) {
  require_pointer(call, name, out);
  if (out->struct_size >= 2 * sizeof(std::size_t)) return;
  refuse(call, std::string("`") + name + "->struct_size` is " + std::to_string(out->struct_size) +
                   "; set it to the struct's size before the call");
}

/// The other way, for a struct that the caller made room for.
template <class Struct>
void write_struct(Struct value, Struct* out) noexcept {
  const std::size_t size = std::min(out->struct_size, sizeof(Struct));
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, size);
}

[[nodiscard]] outboard_config default_config();
[[nodiscard]] outboard_group default_group(outboard_rule rule);
[[nodiscard]] outboard_parameter default_parameter();

[[nodiscard]] Config config_of(const outboard_config& config);
/// @throws Error{invalid_argument} for a rule that is none.
[[nodiscard]] Rule rule_of(const char* call, const outboard_group& group);
[[nodiscard]] GroupOptions options_of(const outboard_group& group);
[[nodiscard]] ParameterSpec spec_of(const outboard_parameter& parameter);
[[nodiscard]] outboard_step_result result_of(const StepResult& result);
[[nodiscard]] outboard_stats stats_of(const StepStats& stats, const MemoryLedger& ledger);

}  // namespace outboard::capi
