// SPDX-License-Identifier: Apache-2.0
#include "device/host_registrations.hpp"

#include <bit>

namespace outboard::device {
namespace {

/// The first `bytes` of `memory`, chunk by chunk, last one first.
void undo_chunks(std::span<std::byte> memory, std::size_t bytes, std::size_t chunk_bytes,
                 HostRegistrations::Unregister one) {
  while (bytes > 0) {
    const std::size_t last = (bytes - 1) % chunk_bytes + 1;
    bytes -= last;
    one(memory.subspan(bytes, last));
  }
}

/// The largest chunk that the device takes, registered from the start of `memory` on; 0: none.
std::size_t first_chunk(std::span<std::byte> memory, HostRegistrations::Register one) {
  std::size_t bytes = std::min(memory.size(), HostRegistrations::kChunkBytes);
  while (!one(memory.first(bytes))) {
    if (bytes <= HostRegistrations::kLeastChunkBytes) return 0;
    bytes = std::bit_floor(bytes - 1);
  }
  return bytes;
}

}  // namespace

bool HostRegistrations::add(std::span<std::byte> memory, Register one, Unregister undo) {
  if (memory.empty()) return true;
  const std::size_t chunk = first_chunk(memory, one);
  if (chunk == 0) return false;
  std::size_t done = chunk;
  try {
    while (done < memory.size()) {
      const std::size_t bytes = std::min(chunk, memory.size() - done);
      if (!one(memory.subspan(done, bytes))) break;
      done += bytes;
    }
    if (done == memory.size()) {
      const std::lock_guard lock(mutex_);
      regions_[memory.data()] = {memory.data(), memory.size(), chunk};
      if (chunk < memory.size()) cut_.fetch_add(1, std::memory_order_release);
      return true;
    }
  } catch (...) {
    undo_chunks(memory, done, chunk, undo);
    throw;
  }
  undo_chunks(memory, done, chunk, undo);
  return false;
}

void HostRegistrations::remove(std::span<std::byte> memory, Unregister one) noexcept {
  Region region;
  {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(memory.data());
    if (found == regions_.end()) return;
    region = found->second;
    regions_.erase(found);
    if (region.chunk_bytes < region.bytes) cut_.fetch_sub(1, std::memory_order_release);
  }
  undo_chunks({memory.data(), region.bytes}, region.bytes, region.chunk_bytes, one);
}

HostRegistrations::Region HostRegistrations::around(std::span<const std::byte> host) const {
  const std::lock_guard lock(mutex_);
  auto next = regions_.upper_bound(host.data());
  if (next == regions_.begin()) return {};
  const Region& region = (--next)->second;
  return host.data() < region.first + region.bytes ? region : Region{};
}

}  // namespace outboard::device
