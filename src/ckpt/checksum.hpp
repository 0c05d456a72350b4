// SPDX-License-Identifier: Apache-2.0
/// XXH3, 64 bits, seed 0: what checkpoints are checked with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace outboard::ckpt {

/// Over bytes that come piece by piece. Move-only.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void add(std::span<const std::byte> bytes) noexcept;
  [[nodiscard]] std::uint64_t value() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] std::uint64_t checksum_of(std::span<const std::byte> bytes) noexcept;
[[nodiscard]] std::uint64_t checksum_of(std::string_view text) noexcept;

/// 16 digits of 0-9a-f: how 64 bits are written in a manifest.
[[nodiscard]] std::string to_hex(std::uint64_t value);
[[nodiscard]] std::optional<std::uint64_t> from_hex(std::string_view text) noexcept;

}  // namespace outboard::ckpt
