// SPDX-License-Identifier: Apache-2.0
/// The parameters that a trainer has registered: their names, where their weights lie, and which
/// names are one weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/backend.hpp"
#include "outboard/engine.hpp"
#include "pipeline/step.hpp"

namespace outboard::engine {

/// Not thread-safe.
class ParameterTable {
 public:
  /// Of a second name for a weight that is there, the first one's id.
  /// @throws Error naming the parameter and what is wrong with it; nothing is added then.
  ParameterId add(const ParameterSpec& spec, std::size_t groups, device::Backend& backend);
  /// Whether its weight may lie at `data`. @throws Error as add().
  void check_move(std::uint32_t index, void* data, device::Backend& backend) const;
  void move(std::uint32_t index, void* data);

  [[nodiscard]] std::size_t size() const noexcept { return inputs_.size(); }
  [[nodiscard]] const pipeline::ParameterInput& operator[](std::size_t index) const {
    return inputs_[index];
  }
  [[nodiscard]] std::span<const pipeline::ParameterInput> inputs() const noexcept {
    return inputs_;
  }
  /// Indices by name, second names of tied weights too.
  [[nodiscard]] const std::map<std::string, std::uint32_t>& names() const noexcept {
    return names_;
  }
  /// Masters are read once.
  void forget_masters() noexcept {
    for (pipeline::ParameterInput& input : inputs_) input.master = {};
  }

 private:
  struct Range {
    std::uintptr_t begin = 0, end = 0;
  };
  [[nodiscard]] std::optional<std::uint32_t> touched(Range range,
                                                     std::optional<std::uint32_t> but = {}) const;
  [[nodiscard]] Range range_of(std::uint32_t index) const;

  std::vector<pipeline::ParameterInput> inputs_;
  std::map<std::string, std::uint32_t> names_;
  std::map<std::uintptr_t, std::uint32_t> by_address_;
};

}  // namespace outboard::engine
