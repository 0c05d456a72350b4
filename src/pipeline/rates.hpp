// SPDX-License-Identifier: Apache-2.0
/// How fast the link and the device are: short trials on scratch memory, timed on the device.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>

#include "pipeline/flow.hpp"
#include "plan/cost_model.hpp"

namespace outboard::pipeline {

/// Both directions of the link at once between `host`, which is overwritten, and device memory that
/// is taken for as long; AdamW's update, a norm and an addition to a sum on the device. Nothing
/// else may be running. Waits. A rate that could not be measured, because the device has no room,
/// is left at 0; so are those of the nodes.
[[nodiscard]] plan::Rates measure_rates(std::unique_lock<std::mutex>& lock, Flow& flow,
                                        std::span<std::byte> host);

}  // namespace outboard::pipeline
