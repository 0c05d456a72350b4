// SPDX-License-Identifier: Apache-2.0
/// Host memory registered in chunks: drivers have ceilings for one registration, and no copy may
/// reach from one into the next.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <span>

#include "core/function_ref.hpp"

namespace outboard::device {

/// Which ranges are registered, and where each is cut. Thread-safe. Allocates in add() only.
class HostRegistrations {
 public:
  /// Most bytes of one registration.
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 30;
  /// Below this a ceiling is taken for a limit on all of it.
  static constexpr std::size_t kLeastChunkBytes = std::size_t{1} << 20;

  using Register = core::FunctionRef<bool(std::span<std::byte>)>;
  using Unregister = core::FunctionRef<void(std::span<std::byte>)>;

  /// Registers page-aligned `memory` from its start on, in chunks of kChunkBytes or, if the first
  /// is refused, of a smaller power of two. @return false, with nothing registered, if a chunk is
  /// refused then. What `one` throws comes through, with nothing registered.
  bool add(std::span<std::byte> memory, Register one, Unregister undo);
  /// Unregisters the chunks of memory that add() took, last one first. Else does nothing.
  void remove(std::span<std::byte> memory, Unregister one) noexcept;

  /// Calls use(offset, bytes) for each part of `host` that lies in one chunk; for all of it if it
  /// is not registered. `host` begins and ends in the same add(), or in none.
  template <class Use>
  void for_each_piece(std::span<const std::byte> host, Use use) const {
    const Region region = cut_.load(std::memory_order_acquire) == 0 ? Region{} : around(host);
    const auto lead =
        static_cast<std::size_t>(region.chunk_bytes == 0 ? 0 : host.data() - region.first);
    std::size_t from = 0;
    do {  // nothing is one piece too: devices check and count such a copy
      std::size_t piece = host.size() - from;
      if (region.chunk_bytes > 0) {
        piece = std::min(piece, region.chunk_bytes - (lead + from) % region.chunk_bytes);
      }
      use(from, piece);
      from += piece;
    } while (from < host.size());
  }

 private:
  struct Region {
    const std::byte* first = nullptr;
    std::size_t bytes = 0;
    std::size_t chunk_bytes = 0;  // 0: not known here
  };
  [[nodiscard]] Region around(std::span<const std::byte> host) const;

  mutable std::mutex mutex_;
  std::map<const std::byte*, Region> regions_;
  std::atomic<std::size_t> cut_{0};  // regions of more than one chunk
};

}  // namespace outboard::device
