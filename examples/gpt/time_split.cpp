// SPDX-License-Identifier: Apache-2.0
#include "time_split.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace gpt {

const char* TimeSplit::cause() const {
  const std::array<std::pair<double, const char*>, 4> parts{
      {{wait_weights, "weights"}, {wait_gradients, "gradients"}, {gate, "gate"}, {other, "host"}}};
  return std::max_element(parts.begin(), parts.end())->second;
}

TimeSplit& operator+=(TimeSplit& sum, const TimeSplit& more) {
  sum.forward += more.forward;
  sum.backward += more.backward;
  sum.wait_weights += more.wait_weights;
  sum.wait_gradients += more.wait_gradients;
  sum.gate += more.gate;
  sum.other += more.other;
  return sum;
}

}  // namespace gpt
