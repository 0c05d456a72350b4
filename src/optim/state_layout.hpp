// SPDX-License-Identifier: Apache-2.0
/// Which streams of memory make up the optimizer state, of a rule and of an engine.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "optim/group.hpp"

namespace outboard::optim {

/// Bytes of one element of any stream: FP32.
inline constexpr std::size_t kStateBytes = sizeof(float);
/// Streams that a rule may have beside the master weight.
inline constexpr std::size_t kMaxRuleStreams = 2;
/// The master weight, the rule's, the average of the weights.
inline constexpr std::size_t kMaxStreams = 1 + kMaxRuleStreams + 1;

/// What a rule keeps beside the master weight, in the order in which its kernel takes it.
[[nodiscard]] std::span<const std::string_view> rule_streams(const Rule& rule) noexcept;

/// One group's streams by name: "master", the rule's, then "ema" if it keeps an average.
[[nodiscard]] std::vector<std::string_view> stream_names(const Group& group);

/// The streams of one engine, in the order in which leases hand them out: the master weight, as
/// many as the widest rule has, the average if any group keeps one. Every element has all of them;
/// what its own group lacks stays zero.
struct StateLayout {
  std::vector<std::string> purposes;  ///< as the ledger names them
  std::size_t rule_streams = 0;       ///< of the widest rule; from stream 1 on
  bool ema = false;                   ///< the last stream, if there is one

  [[nodiscard]] std::size_t streams() const noexcept { return purposes.size(); }
  [[nodiscard]] std::size_t elem_bytes() const noexcept { return streams() * kStateBytes; }
  [[nodiscard]] std::size_t ema_stream() const noexcept { return 1 + rule_streams; }
};

/// Of all groups that a parameter is in; `used[i]`: whether groups[i] is one.
[[nodiscard]] StateLayout make_state_layout(std::span<const Group> groups,
                                            const std::vector<bool>& used);

}  // namespace outboard::optim
