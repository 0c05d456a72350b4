// SPDX-License-Identifier: Apache-2.0
/// The model to beat: how often each token follows the one or two before it, counted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

namespace example {

/// An interpolated n-gram model with Witten-Bell smoothing, which has no parameter to tune and so
/// needs no held-out data (Witten & Bell, "The zero-frequency problem", 1991):
///     P(b | c) = (n(c b) + t(c) P(b | c without its first token)) / (n(c) + t(c))
/// with t(c) different tokens seen after the context c, and P(b) = (n(b) + 1) / (n + vocabulary).
class NGram {
 public:
  /// `order`: tokens of context, at most 2.
  NGram(std::size_t order, std::size_t vocabulary) : order_(order), vocabulary_(vocabulary) {}

  /// Adds the counts of one run of text. Nothing is counted across runs.
  void count(std::span<const std::uint16_t> run);
  /// Of `token` after `before`, of which the last tokens count; fewer than `order` are used as
  /// they are.
  [[nodiscard]] double probability(std::span<const std::uint16_t> before,
                                   std::uint16_t token) const;

 private:
  struct Context {
    std::uint64_t tokens = 0;  // n(c)
    std::uint64_t types = 0;   // t(c)
  };
  struct Level {  // of one length of context
    std::unordered_map<std::uint64_t, Context> contexts;
    std::unordered_map<std::uint64_t, std::uint64_t> counts;  // n(c b)
  };
  std::size_t order_, vocabulary_;
  std::array<Level, 3> levels_;
};

}  // namespace example
