// SPDX-License-Identifier: Apache-2.0
#include "engine/parameter_table.hpp"

#include "engine/parameter_checks.hpp"
#include "outboard/error.hpp"

namespace outboard::engine {
namespace {

std::uintptr_t number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

[[noreturn]] void refuse_overlap(const std::string& who, const pipeline::ParameterInput& other) {
  refuse(who,
         "overlaps '" + other.name + "' in part; only the very same weight can have a second name");
}

void require_same_settings(const std::string& who, const ParameterSpec& spec,
                           const pipeline::ParameterInput& other) {
  if (spec.group.value != other.group) {
    refuse(who, "is the weight of '" + other.name +
                    "' but names another group; a weight is updated once, by one group");
  }
  if (!spec.master.empty()) {
    refuse(who, "is the weight of '" + other.name +
                    "' and brings a `master` of its own; give it with the first name");
  }
}

}  // namespace

ParameterId ParameterTable::add(const ParameterSpec& spec, std::size_t groups,
                                device::Backend& backend) {
  const std::string who = "add_parameter(): parameter '" + spec.name + "'";
  if (spec.name.empty()) refuse(who, "needs a name");
  if (names_.contains(spec.name)) refuse(who, "is registered already");
  check_parameter(who, spec, groups, backend);
  const std::uintptr_t begin = number(spec.data);
  if (const auto there = touched({begin, begin + spec.elems * dtype_bytes(spec.dtype)})) {
    const pipeline::ParameterInput& other = inputs_[*there];
    if (other.weight != spec.data || other.elems != spec.elems || other.dtype != spec.dtype) {
      refuse_overlap(who, other);
    }
    require_same_settings(who, spec, other);
    names_.emplace(spec.name, *there);
    return ParameterId{*there};
  }
  const auto index = static_cast<std::uint32_t>(inputs_.size());
  names_.emplace(spec.name, index);
  if (spec.elems > 0) by_address_[begin] = index;
  inputs_.push_back({.name = spec.name,
                     .dtype = spec.dtype,
                     .weight = spec.data,
                     .elems = spec.elems,
                     .group = spec.group.value,
                     .master = spec.master});
  return ParameterId{index};
}

void ParameterTable::check_move(std::uint32_t index, void* data, device::Backend& backend) const {
  const pipeline::ParameterInput& input = inputs_[index];
  const std::string who = "rebind(): parameter '" + input.name + "'";
  check_weight(who, {data, input.elems, input.dtype}, backend);
  const std::uintptr_t begin = number(data);
  const auto there = touched({begin, begin + input.elems * dtype_bytes(input.dtype)}, index);
  if (there) refuse_overlap(who, inputs_[*there]);
}

void ParameterTable::move(std::uint32_t index, void* data) {
  pipeline::ParameterInput& input = inputs_[index];
  if (input.elems == 0) return;
  by_address_.erase(number(input.weight));
  by_address_[number(data)] = index;
  input.weight = data;
}

ParameterTable::Range ParameterTable::range_of(std::uint32_t index) const {
  const pipeline::ParameterInput& input = inputs_[index];
  const std::uintptr_t begin = number(input.weight);
  return {begin, begin + input.elems * dtype_bytes(input.dtype)};
}

/// The weight that shares a byte with `range`, if there is one beside `but`.
std::optional<std::uint32_t> ParameterTable::touched(Range range,
                                                     std::optional<std::uint32_t> but) const {
  // Weights share no byte with each other, so only those that begin below the range's end and
  // reach furthest can; `but` may lie between.
  auto next = by_address_.lower_bound(range.end);
  while (range.begin < range.end && next != by_address_.begin()) {
    --next;
    if (next->second == but) continue;
    if (range_of(next->second).end <= range.begin) return std::nullopt;
    return next->second;
  }
  return std::nullopt;
}

}  // namespace outboard::engine
