// SPDX-License-Identifier: Apache-2.0
/// Counts the calls of each kind and says which of them are to fail.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "outboard/sim.hpp"

namespace outboard::sim {

/// Not thread-safe.
class FaultPlan {
 public:
  explicit FaultPlan(std::vector<Fault> faults) : faults_(std::move(faults)) {}

  /// Counts one call. @return 0, or the number of this call if its operation is to fail when it
  /// runs. @throws Error{device_failure} if the call itself is to fail.
  std::uint64_t next(Call call);
  /// As next(), for calls that may not throw: fails either way by a number.
  std::uint64_t next_without_throw(Call call) noexcept;

 private:
  static constexpr std::size_t kCalls = static_cast<std::size_t>(Call::write_flag) + 1;

  std::vector<Fault> faults_;
  std::array<std::uint64_t, kCalls> calls_{};
};

/// "copy_to_host: injected failure (call 3 of this kind)".
[[nodiscard]] std::string injected_failure(Call call, std::uint64_t number);

}  // namespace outboard::sim
