// SPDX-License-Identifier: Apache-2.0
// Sums and text of the memory ledger.
#include <algorithm>
#include <array>
#include <cstdio>

#include "outboard/stats.hpp"

namespace outboard {
namespace {

constexpr std::array<const char*, 3> kPlaces = {"host, pinned", "host, pageable", "device"};

std::string name_of(const LedgerEntry& entry) {
  if (entry.place == MemoryPlace::device) return entry.purpose;
  std::string name = entry.purpose + ", node " + std::to_string(entry.node);
  if (!entry.memory_node) return name;
  return name + " (in NUMA node " + std::to_string(*entry.memory_node) + ")";
}

/// `width` of `what`'s column, at least its length.
std::string line(std::string what, std::size_t width, const char* place, std::size_t bytes,
                 std::uint64_t elems) {
  what.resize(width, ' ');
  const double per_parameter =
      elems == 0 ? 0.0 : static_cast<double>(bytes) / static_cast<double>(elems);
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), " %-15s %14zu B %9.2f MiB %7.2f B/param\n", place, bytes,
                static_cast<double>(bytes) / 1048576.0, per_parameter);
  return what + text.data();
}

}  // namespace

std::size_t MemoryLedger::bytes(MemoryPlace place) const {
  std::size_t sum = 0;
  for (const LedgerEntry& entry : entries) {
    if (entry.place == place) sum += entry.bytes;
  }
  return sum;
}

std::string MemoryLedger::to_string() const {
  std::string text;
  std::size_t width = 32;
  for (const LedgerEntry& entry : entries) width = std::max(width, name_of(entry).size());
  for (const LedgerEntry& entry : entries) {
    const char* place = kPlaces[static_cast<std::size_t>(entry.place)];
    text += line(name_of(entry), width, place, entry.bytes, trainable_elems);
  }
  for (const auto place :
       {MemoryPlace::host_pinned, MemoryPlace::host_pageable, MemoryPlace::device}) {
    const char* name = kPlaces[static_cast<std::size_t>(place)];
    text += line("total", width, name, bytes(place), trainable_elems);
  }
  return text;
}

}  // namespace outboard
