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
#include "outboard/error.hpp"

namespace outboard::memory {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

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

/// Maps one huge page too much and gives back what lies outside the aligned range.
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
  (void)madvise(first + head, bytes, MADV_HUGEPAGE);  // a kernel without huge pages refuses
  return first + head;
}

}  // namespace

NumaArena::NumaArena(const topology::Machine& machine, std::uint32_t node, std::size_t bytes,
                     const char* purpose)
    : node_(node) {
  if (bytes == 0) return;
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * kHugePage) {
    throw_no_memory(purpose, bytes, ENOMEM);
  }
  const bool huge = bytes >= kHugePage;
  // The end of a large arena lies in small pages: the ledger counts what is used, not 2 MiB more.
  const std::size_t mapped = core::round_up(bytes, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  std::byte* const first = huge ? map_aligned(mapped) : map(mapped);
  if (first == nullptr) throw_no_memory(purpose, bytes, errno);
  memory_ = {first, mapped};
  try {
    binding_note_ = topology::bind_memory(machine, node, memory_);
  } catch (...) {
    unmap();
    throw;
  }
}

NumaArena::~NumaArena() {
  unmap();
}

NumaArena::NumaArena(NumaArena&& other) noexcept
    : memory_(std::exchange(other.memory_, {})),
      node_(other.node_),
      binding_note_(std::move(other.binding_note_)) {}

NumaArena& NumaArena::operator=(NumaArena&& other) noexcept {
  if (this != &other) {
    unmap();
    memory_ = std::exchange(other.memory_, {});
    node_ = other.node_;
    binding_note_ = std::move(other.binding_note_);
  }
  return *this;
}

void NumaArena::unmap() noexcept {
  if (!memory_.empty()) (void)munmap(memory_.data(), memory_.size());
  memory_ = {};
}

}  // namespace outboard::memory
