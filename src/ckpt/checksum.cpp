// SPDX-License-Identifier: Apache-2.0
#include "ckpt/checksum.hpp"

#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace outboard::ckpt {

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(new State) {
  XXH3_64bits_reset(&state_->xxh3);
}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::add(std::span<const std::byte> bytes) noexcept {
  if (!bytes.empty()) XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const noexcept {
  return XXH3_64bits_digest(&state_->xxh3);
}

std::uint64_t checksum_of(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t checksum_of(std::string_view text) noexcept {
  return checksum_of(std::as_bytes(std::span(text)));
}

std::string to_hex(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

std::optional<std::uint64_t> from_hex(std::string_view text) noexcept {
  if (text.size() != 16) return {};
  std::uint64_t value = 0;
  for (const char digit : text) {
    const bool decimal = digit >= '0' && digit <= '9';
    if (!decimal && (digit < 'a' || digit > 'f')) return {};
    value = value << 4 | static_cast<std::uint64_t>(decimal ? digit - '0' : digit - 'a' + 10);
  }
  return value;
}

}  // namespace outboard::ckpt
