// SPDX-License-Identifier: Apache-2.0
/// Host memory of one purpose on one NUMA node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "topology/machine.hpp"

namespace outboard::memory {

/// One anonymous mapping, bound to a node, in transparent huge pages where it is large enough.
/// Move-only. Pages are touched by whoever writes first: the node's own workers.
class NumaArena {
 public:
  NumaArena() = default;
  /// Maps `bytes` (rounded up to a page; aligned to 2 MiB from 2 MiB on). 0 bytes: maps nothing.
  /// @throws Error{out_of_memory} saying what for and how much.
  NumaArena(const topology::Machine& machine, std::uint32_t node, std::size_t bytes,
            const char* purpose);
  ~NumaArena();
  NumaArena(NumaArena&& other) noexcept;
  NumaArena& operator=(NumaArena&& other) noexcept;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return memory_; }
  [[nodiscard]] std::uint32_t node() const noexcept { return node_; }
  /// "" or why the pages could not be bound.
  [[nodiscard]] const std::string& binding_note() const noexcept { return binding_note_; }

 private:
  void unmap() noexcept;
  std::span<std::byte> memory_;
  std::uint32_t node_ = 0;
  std::string binding_note_;
};

}  // namespace outboard::memory
