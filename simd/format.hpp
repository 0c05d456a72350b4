// SPDX-License-Identifier: Apache-2.0
/// The element formats of gradients and weights, and elements whose format is known at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::simd {

enum class Format : std::uint8_t {
  f16,   ///< IEEE binary16
  bf16,  ///< the upper half of a binary32
  f32,   ///< IEEE binary32
};

[[nodiscard]] constexpr std::size_t format_bytes(Format format) noexcept {
  return format == Format::f32 ? 4 : 2;
}

/// Borrowed elements, aligned as one element. How many there are, the call says.
struct ConstElements {
  const void* data = nullptr;
  Format format = Format::f16;
};
struct Elements {
  void* data = nullptr;
  Format format = Format::f16;
};

}  // namespace outboard::simd
