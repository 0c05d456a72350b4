// SPDX-License-Identifier: Apache-2.0
/// One bucket's passage through a step.
#pragma once

#include <cstdint>

#include "memory/staging_pool.hpp"
#include "memory/state_store.hpp"

namespace outboard::pipeline {

/// Made when all gradients of a bucket have arrived and the gate is open; walks from gradient_out
/// through update to weight_in and is never handed back. Move-only, as the lease in it.
struct Ticket {
  std::uint32_t bucket = 0;
  memory::StateLease state;
  memory::SlotView slot;
};

}  // namespace outboard::pipeline
