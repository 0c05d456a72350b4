// SPDX-License-Identifier: Apache-2.0
/// The kernels' name for a public dtype.
#pragma once

#include "outboard/types.hpp"
#include "simd/format.hpp"

namespace outboard::optim {

[[nodiscard]] constexpr simd::Format format_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f16:
      return simd::Format::f16;
    case DType::bf16:
      return simd::Format::bf16;
    case DType::f32:
      break;
  }
  return simd::Format::f32;
}

/// A quiet NaN of the format, in its low bits.
[[nodiscard]] constexpr std::uint32_t nan_bits(DType dtype) noexcept {
  return dtype == DType::f16 ? 0x7E00U : dtype == DType::bf16 ? 0x7FC0U : 0x7FC00000U;
}

}  // namespace outboard::optim
