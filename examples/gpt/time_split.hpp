// SPDX-License-Identifier: Apache-2.0
/// Where the time of a training step goes.
#pragma once

namespace gpt {

/// Milliseconds; together they are the step. All but the kernels' is exposed: the device idles.
struct TimeSplit {
  double forward = 0.0, backward = 0.0;  ///< kernels
  double wait_weights = 0.0;             ///< forward, between kernels: refreshed weights under way
  double wait_gradients = 0.0;  ///< backward, between kernels: gradient buffers not taken yet
  double gate = 0.0;            ///< from the end of backward to the end of step(): copies, norm
  double other = 0.0;           ///< the host's preparations

  [[nodiscard]] double kernels() const { return forward + backward; }
  [[nodiscard]] double exposed() const { return wait_weights + wait_gradients + gate + other; }
  [[nodiscard]] double total() const { return kernels() + exposed(); }
  /// The largest of the exposed parts, in a word or two.
  [[nodiscard]] const char* cause() const;
};
TimeSplit& operator+=(TimeSplit& sum, const TimeSplit& more);

}  // namespace gpt
