// SPDX-License-Identifier: Apache-2.0
/// Host memory of one purpose on one NUMA node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "memory/first_touch.hpp"
#include "memory/state_homes.hpp"
#include "outboard/stats.hpp"
#include "topology/machine.hpp"

namespace outboard::memory {

/// One range of anonymous memory, bound to a node. From 2 MiB on it lies in huge pages: in reserved
/// ones if the node has enough of them free, else in transparent ones if the kernel gives any; its
/// last bytes, which fill no huge page, lie in small ones. Move-only.
/// Reserved pages are there from construction on; others are touched by whoever writes first.
class NumaArena {
 public:
  NumaArena() = default;
  /// Maps `bytes` (rounded up to a page; aligned to 2 MiB from 2 MiB on). 0 bytes: maps nothing.
  /// `touch` brings in reserved huge pages: a fault that finds none would end the process.
  /// @throws Error{out_of_memory} saying what for and how much.
  NumaArena(const topology::Machine& machine, const ArenaPlace& place, std::size_t bytes,
            const char* purpose, FirstTouch touch = touch_here);
  ~NumaArena();
  NumaArena(NumaArena&& other) noexcept;
  NumaArena& operator=(NumaArena&& other) noexcept;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return memory_; }
  [[nodiscard]] std::uint32_t node() const noexcept { return place_.node; }
  [[nodiscard]] const ArenaPlace& place() const noexcept { return place_; }
  /// Of all of it but the last bytes. `transparent`: asked for, and the kernel gives such.
  [[nodiscard]] PageKind pages() const noexcept { return pages_; }
  /// What nobody has touched yet.
  [[nodiscard]] FreshMemory fresh() const noexcept {
    return {place_.node, pages_ == PageKind::reserved_huge ? std::span<std::byte>() : memory_};
  }
  /// "" or why the pages could not be bound.
  [[nodiscard]] const std::string& binding_note() const noexcept { return binding_note_; }

 private:
  bool map_reserved(const topology::Machine& machine, std::size_t mapped, FirstTouch touch);
  void map_plain(std::size_t mapped, const char* purpose, std::size_t asked);
  void bind(const topology::Machine& machine);
  void unmap() noexcept;
  std::span<std::byte> memory_;
  ArenaPlace place_;
  PageKind pages_ = PageKind::small;
  std::string binding_note_;
};

}  // namespace outboard::memory
