// SPDX-License-Identifier: Apache-2.0
/// Rows of FP16 bits to and from float, vectorised for the CPU it runs on. The same bits on every
/// CPU.
#pragma once

#include <cstdint>
#include <span>

namespace example {

/// IEEE binary16 bits: what weights, activations and gradients are stored as.
using Half = std::uint16_t;

/// `floats` must be as long as `halves`.
void widen(std::span<const Half> halves, std::span<float> floats);
/// Rounds to nearest even; too big becomes infinity. `halves` must be as long as `floats`.
void narrow(std::span<const float> floats, std::span<Half> halves);

}  // namespace example
