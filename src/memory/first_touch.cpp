// SPDX-License-Identifier: Apache-2.0
#include "memory/first_touch.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace outboard::memory {
namespace {

#ifndef MADV_POPULATE_WRITE
constexpr int MADV_POPULATE_WRITE = 23;  // Linux 5.14
#endif

}  // namespace

int bring_in(std::span<std::byte> fresh) noexcept {
  if (fresh.empty()) return 0;
  // One call for many pages: a fault for each costs as much again as clearing it.
  int result = 0;
  do {
    result = madvise(fresh.data(), fresh.size(), MADV_POPULATE_WRITE);
  } while (result != 0 && (errno == EINTR || errno == EAGAIN));
  if (result == 0) return 0;
  if (errno != EINVAL) return errno;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t i = 0; i < fresh.size(); i += page) {
    *static_cast<volatile std::byte*>(&fresh[i]) = std::byte{0};
  }
  return 0;
}

bool TouchHere::operator()(std::span<const FreshMemory> fresh) const noexcept {
  return std::ranges::all_of(fresh,
                             [](const FreshMemory& one) { return bring_in(one.bytes) == 0; });
}

}  // namespace outboard::memory
