// SPDX-License-Identifier: Apache-2.0
/// Memory of the software GPU. One memfd mapped twice: the addresses handed out allow no access, so
/// that a host access faults; the alias is for kernels and copies only. The host device has no such
/// fence: any address of the process is its own, and an allocation is one of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "device/sim/mapped_ranges.hpp"
#include "outboard/sim.hpp"

namespace outboard::sim {

/// First-fit allocator of 256-byte-aligned ranges. Thread-safe.
class DeviceMemory {
 public:
  static constexpr std::size_t kAlignment = 256;

  enum class Kind : std::uint8_t {
    fenced,
    poisoned,  ///< and new allocations are filled with 0xFF bytes (NaN in every float format)
    host,
  };
  /// @throws Error{out_of_memory} if the host cannot map it.
  DeviceMemory(std::size_t limit_bytes, Kind kind);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// 0 bytes take as much as 1. @throws Error{out_of_memory} saying asked, used and limit.
  void* allocate(std::size_t bytes);
  /// @return false if no live allocation starts at `address`.
  bool release(void* address) noexcept;
  [[nodiscard]] bool on_host() const noexcept { return kind_ == Kind::host; }
  [[nodiscard]] MemoryUse use() const;
  [[nodiscard]] std::uint64_t live() const;

  /// The host's alias of [address, address+bytes). 0 bytes are always right.
  /// @throws Error{invalid_argument} unless it lies in one live allocation (Kind::host: is not
  /// null) and is aligned.
  [[nodiscard]] void* alias(const void* address, std::size_t bytes,
                            std::size_t alignment = 1) const;
  /// As alias() for memory that the trainer hands in. Kind::host: the process must have mapped all
  /// of it for reading, or for reading and writing.
  void check(const void* address, std::size_t bytes, bool written) const;

 private:
  void map();
  void* allocate_on_host(std::size_t bytes, std::size_t take);
  [[nodiscard]] std::size_t largest_free() const;
  void insert_free(std::size_t offset, std::size_t bytes);

  std::size_t limit_;
  std::size_t mapped_;
  Kind kind_;
  mutable MappedRanges mapped_ranges_;  // Kind::host
  std::byte* outer_ = nullptr;          // PROT_NONE: what the host sees as device addresses
  std::byte* inner_ = nullptr;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // offset -> bytes, neighbours merged
  std::map<std::size_t, std::size_t> live_;  // offset (Kind::host: address) -> bytes as asked
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace outboard::sim
