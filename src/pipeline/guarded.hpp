// SPDX-License-Identifier: Apache-2.0
/// What every public call of the pipeline is wrapped in, and how messages name a parameter. For the
/// sources that hold such calls.
#pragma once

#include <string>

#include "pipeline/step.hpp"

namespace outboard::pipeline {

inline std::string quoted(const Parameter& parameter) {
  return "parameter '" + parameter.name + "'";
}

inline bool is_device_trouble(ErrorCode code) {
  return code == ErrorCode::device_failure || code == ErrorCode::deadlock;
}

template <class Call>
auto Pipeline::guarded(Call&& call) {
  const Delivery delivery(*this);  // goes after the lock
  std::unique_lock lock(flow_.mutex);
  flow_.throw_if_broken();
  try {
    return call(lock);
  } catch (const Error& failure) {
    if (!lock.owns_lock()) lock.lock();
    if (is_device_trouble(failure.code())) {
      flow_.error.capture(failure.code(), failure.what());
      flow_.error.mark_reported();
      flow_.backend.waiter().wake();
    }
    throw;
  }
}

}  // namespace outboard::pipeline
