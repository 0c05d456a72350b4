// SPDX-License-Identifier: Apache-2.0
/// Saves to a file system that is full, or that another program fills meanwhile.
#pragma once

#include <string>

#include "support/tiny_trainer.hpp"

namespace outboard::power_test {

/// In `root` is a checkpoint of the trainer's state as it is. Fills the file system that it is on
/// and makes room again. @throws std::runtime_error unless saves are refused as no_space, training
/// goes on, the checkpoint before loads and saves work once there is room; Error.
void survive_a_full_disk(testing::TinyTrainer& trainer, const std::string& root);

}  // namespace outboard::power_test
