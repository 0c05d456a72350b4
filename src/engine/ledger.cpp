// SPDX-License-Identifier: Apache-2.0
// Sums and text of the memory ledger.
#include <array>
#include <cstdio>

#include "outboard/stats.hpp"

namespace outboard {
namespace {

constexpr std::array<const char*, 3> kPlaces = {"host, pinned", "host, pageable", "device"};

std::string line(const char* what, const char* place, std::size_t bytes, std::uint64_t elems) {
  const double per_parameter =
      elems == 0 ? 0.0 : static_cast<double>(bytes) / static_cast<double>(elems);
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), "%-32s %-15s %14zu B %9.2f MiB %7.2f B/param\n", what,
                place, bytes, static_cast<double>(bytes) / 1048576.0, per_parameter);
  return text.data();
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
  for (const LedgerEntry& entry : entries) {
    const char* place = kPlaces[static_cast<std::size_t>(entry.place)];
    std::string what = entry.purpose;
    if (entry.place != MemoryPlace::device) what += ", node " + std::to_string(entry.node);
    text += line(what.c_str(), place, entry.bytes, trainable_elems);
  }
  for (const auto place :
       {MemoryPlace::host_pinned, MemoryPlace::host_pageable, MemoryPlace::device}) {
    text += line("total", kPlaces[static_cast<std::size_t>(place)], bytes(place), trainable_elems);
  }
  return text;
}

}  // namespace outboard
