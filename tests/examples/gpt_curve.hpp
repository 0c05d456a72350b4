// SPDX-License-Identifier: Apache-2.0
/// The same training twice: by the example, in mixed precision with its optimizer on the host, and
/// in double precision all through. Same starting weights, batches, schedule, clipping and decay.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "options.hpp"
#include "tokens.hpp"

namespace gpt::test {

/// Nats per token.
struct Curve {
  std::vector<double> training;  ///< of each step
  double held_out = 0.0;         ///< at the end
  std::uint64_t skipped = 0;

  /// Mean over the first or last `steps`.
  [[nodiscard]] double first(std::size_t steps) const;
  [[nodiscard]] double last(std::size_t steps) const;
};

/// As `outboard_gpt` with these arguments trains; its log goes to `log` and is removed.
[[nodiscard]] Curve train_mixed(Options options, const Tokens& tokens, const std::string& log);
/// The double-precision model with a plain AdamW in double. `progress` gets a line now and then.
[[nodiscard]] Curve train_double(const Options& options, const Tokens& tokens,
                                 std::ostream& progress);

/// How far apart they are, also as text for people.
struct CurveDifference {
  double largest = 0.0;  ///< of any step
  std::uint64_t largest_step = 0;
  double mean = 0.0;        ///< of absolute differences, over all steps
  double last_steps = 0.0;  ///< of the means over the last kLastSteps
  double held_out = 0.0;    ///< at the end
  std::string text;
};
inline constexpr std::size_t kLastSteps = 20;
[[nodiscard]] CurveDifference compare(const Curve& mixed, const Curve& plain);

}  // namespace gpt::test
