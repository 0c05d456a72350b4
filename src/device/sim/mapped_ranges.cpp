// SPDX-License-Identifier: Apache-2.0
#include "device/sim/mapped_ranges.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

namespace outboard::sim {

bool MappedRanges::cover(const void* address, std::size_t bytes, bool written) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (address == nullptr || bytes > std::numeric_limits<std::uintptr_t>::max() - begin)
    return false;
  const std::scoped_lock guard(mutex_);
  if (known(begin, begin + bytes, written)) return true;
  return !read() || known(begin, begin + bytes, written);
}

bool MappedRanges::known(std::uintptr_t begin, std::uintptr_t end, bool written) const {
  auto range = std::ranges::upper_bound(ranges_, begin, {}, &Range::begin);
  if (range == ranges_.begin()) return false;
  for (--range; range != ranges_.end() && range->begin <= begin; ++range) {
    if (range->end <= begin || (written && !range->writable)) return false;
    if (range->end >= end) return true;
    begin = range->end;
  }
  return false;
}

// A line begins with "7f0c8a000000-7f0c8a021000 rw-p ".
bool MappedRanges::read() {
  std::ifstream file("/proc/self/maps");
  if (!file) return false;
  ranges_.clear();
  for (std::string line; std::getline(file, line);) {
    char* next = nullptr;
    Range range;
    range.begin = std::strtoull(line.c_str(), &next, 16);
    if (*next != '-') continue;
    range.end = std::strtoull(next + 1, &next, 16);
    if (next[0] != ' ' || next[1] != 'r') continue;
    range.writable = next[2] == 'w';
    ranges_.push_back(range);
  }
  return true;
}

}  // namespace outboard::sim
