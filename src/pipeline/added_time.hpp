// SPDX-License-Identifier: Apache-2.0
/// A scope whose time counts towards one of the sums of StepStats.
#pragma once

#include <cstdint>

#include "pipeline/flow.hpp"

namespace outboard::pipeline {

/// Made and destroyed with the lock held; waiting in between is what it is for.
class AddedTime {
 public:
  AddedTime(Flow& flow, double& sum_us)
      : flow_(flow), sum_us_(sum_us), start_ns_(flow.backend.now_ns()) {}
  ~AddedTime() { sum_us_ += static_cast<double>(flow_.backend.now_ns() - start_ns_) * 1e-3; }
  AddedTime(const AddedTime&) = delete;
  AddedTime& operator=(const AddedTime&) = delete;

 private:
  Flow& flow_;
  double& sum_us_;
  std::int64_t start_ns_;
};

}  // namespace outboard::pipeline
