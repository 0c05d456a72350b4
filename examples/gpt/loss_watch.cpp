// SPDX-License-Identifier: Apache-2.0
#include "loss_watch.hpp"

#include <cmath>
#include <string>

#include "../common/format.hpp"

namespace gpt {
namespace {

using example::print;

constexpr double kMeanSteps = 20.0;  // over which a loss is judged

}  // namespace

LossWatch::LossWatch(std::size_t vocab)
    : blind_(std::log(static_cast<double>(vocab))), mean_(blind_) {}

void LossWatch::check(std::uint64_t step, double loss, double lr) {
  const std::string at = " at step " + std::to_string(step) + ", learning rate " + print("%g", lr);
  const char* const remedy = "; lower --lr, raise --warmup or lower --max-grad-norm";
  if (!std::isfinite(loss)) {
    throw Diverged("training diverged: the loss is " +
                   (std::isnan(loss) ? "nan" : print("%g", loss)) + at +
                   ", the last finite one was " + print("%.4f", last_finite_) + remedy);
  }
  last_finite_ = loss;
  mean_ += (loss - mean_) / kMeanSteps;
  if (mean_ > blind_ + 1.0) {
    throw Diverged("training diverged: the loss is " + print("%.4f", loss) + at +
                   ", and guessing blindly gives " + print("%.4f", blind_) + remedy);
  }
}

}  // namespace gpt
