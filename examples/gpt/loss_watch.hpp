// SPDX-License-Identifier: Apache-2.0
/// Whether a loss will come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace gpt {

/// The loss left the range in which training makes sense: which step, which loss, what to do.
class Diverged : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Finds out that a loss will not come back.
class LossWatch {
 public:
  /// `vocab` tokens: guessing blindly has a loss of ln(vocab).
  explicit LossWatch(std::size_t vocab);
  /// @throws Diverged if the loss is not finite, or if a mean over the last steps is more than 1
  /// nat above blind guessing.
  void check(std::uint64_t step, double loss, double lr);

 private:
  double blind_, mean_;
  double last_finite_ = 0.0;
};

}  // namespace gpt
