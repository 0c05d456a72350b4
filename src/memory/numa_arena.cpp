// SPDX-License-Identifier: Apache-2.0
#include "memory/numa_arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <system_error>
#include <utility>

#include "core/round_up.hpp"
#include "memory/huge_pages.hpp"
#include "memory/reserved_credit.hpp"
#include "outboard/error.hpp"

namespace outboard::memory {
namespace {

[[noreturn]] void throw_no_memory(const char* purpose, std::size_t bytes, int error) {
  throw Error(ErrorCode::out_of_memory,
              std::string("no host memory for ") + purpose + ": " + std::to_string(bytes) +
                  " bytes asked; mmap: " + std::generic_category().message(error) + " (errno " +
                  std::to_string(error) +
                  "); use a smaller model or more shards, or raise the limit (ulimit -v, "
                  "container memory)");
}

/// Null, with errno, if the system refuses.
std::byte* map(std::size_t bytes) noexcept {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return address == MAP_FAILED ? nullptr : static_cast<std::byte*>(address);
}

/// Maps one huge page too much and gives back what lies outside the aligned range. Null if refused.
std::byte* map_aligned(std::size_t bytes) noexcept {
  std::byte* const first = map(bytes + kHugePage);
  if (first == nullptr) return nullptr;
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(first) % kHugePage;
  const std::size_t head = misaligned == 0 ? 0 : kHugePage - misaligned;
  const std::size_t tail = kHugePage - head;
  // Parts of one private mapping of ours: unmapping them fails only if the kernel is out of map
  // entries, and then costs address space alone.
  if (head > 0) (void)munmap(first, head);
  if (tail > 0) (void)munmap(first + head + bytes, tail);
  return first + head;
}

#ifndef MAP_HUGE_2MB
constexpr int MAP_HUGE_2MB = 21 << 26;
#endif

/// Reserved huge pages, and small ones for what fills none: those take the place of one huge page
/// more, so that both lie in a row. Null if the system refuses.
std::byte* map_reserved_pages(std::size_t bytes) noexcept {
  const std::size_t all = core::round_up(bytes, kHugePage);
  void* const address = mmap(nullptr, all, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(address);
  if (bytes == all) return first;
  const std::size_t huge = all - kHugePage;
  if (mmap(first + huge, kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
           -1, 0) == MAP_FAILED) {
    (void)munmap(first, huge);  // the last page may be somebody else's already
    return nullptr;
  }
  (void)munmap(first + bytes, all - bytes);
  return first;
}

}  // namespace

NumaArena::NumaArena(const topology::Machine& machine, const ArenaPlace& place, std::size_t bytes,
                     const char* purpose, FirstTouch touch)
    : place_(place) {
  if (bytes == 0) return;
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * kHugePage) {
    throw_no_memory(purpose, bytes, ENOMEM);
  }
  // The end of a large arena lies in small pages: the ledger counts what is used, not 2 MiB more.
  const std::size_t mapped = core::round_up(bytes, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  try {
    if (map_reserved(machine, mapped, touch)) return;
    map_plain(mapped, purpose, bytes);
    bind(machine);
  } catch (...) {
    unmap();
    throw;
  }
}

/// All or nothing.
bool NumaArena::map_reserved(const topology::Machine& machine, std::size_t mapped,
                             FirstTouch touch) {
  if (mapped < kHugePage) return false;
  if (reserved_for(machine, place_) < core::round_up(mapped, kHugePage)) return false;
  std::byte* const first = map_reserved_pages(mapped);
  if (first == nullptr) return false;
  memory_ = {first, mapped};
  bind(machine);
  const FreshMemory fresh{place_.node, memory_};
  if (!touch({&fresh, 1})) {
    unmap();
    return false;
  }
  pages_ = PageKind::reserved_huge;
  return true;
}

void NumaArena::map_plain(std::size_t mapped, const char* purpose, std::size_t asked) {
  const bool huge = mapped >= kHugePage;
  std::byte* const first = huge ? map_aligned(mapped) : map(mapped);
  if (first == nullptr) throw_no_memory(purpose, asked, errno);
  memory_ = {first, mapped};
  if (!huge) return;
  const bool asked_for = madvise(first, mapped, MADV_HUGEPAGE) == 0;
  if (asked_for && transparent_huge_pages("")) pages_ = PageKind::transparent_huge;
}

void NumaArena::bind(const topology::Machine& machine) {
  binding_note_ = topology::bind_memory_to(machine, os_node_of(machine, place_), memory_);
}

NumaArena::~NumaArena() {
  unmap();
}

NumaArena::NumaArena(NumaArena&& other) noexcept
    : memory_(std::exchange(other.memory_, {})),
      place_(other.place_),
      pages_(other.pages_),
      binding_note_(std::move(other.binding_note_)) {}

NumaArena& NumaArena::operator=(NumaArena&& other) noexcept {
  if (this != &other) {
    unmap();
    memory_ = std::exchange(other.memory_, {});
    place_ = other.place_;
    pages_ = other.pages_;
    binding_note_ = std::move(other.binding_note_);
  }
  return *this;
}

void NumaArena::unmap() noexcept {
  if (!memory_.empty()) (void)munmap(memory_.data(), memory_.size());
  memory_ = {};
}

}  // namespace outboard::memory
