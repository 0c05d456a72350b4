// SPDX-License-Identifier: Apache-2.0
#include "fuzz/bounded.hpp"

#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

bool bounded = false;
std::size_t held = 0;
std::size_t most_held = 0;

void* take(std::size_t bytes) noexcept {
  if (bounded && (bytes > most_held || held + bytes > most_held)) {
    std::fprintf(stderr, "%zu bytes asked, %zu held, and the input allows %zu\n", bytes, held,
                 most_held);
    std::abort();
  }
  void* const memory = std::malloc(bytes > 0 ? bytes : 1);
  if (bounded && memory != nullptr) held += malloc_usable_size(memory);
  return memory;
}

void* take_or_throw(std::size_t bytes) {
  void* const memory = take(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void give_back(void* memory) noexcept {
  if (bounded && memory != nullptr) {
    const std::size_t bytes = malloc_usable_size(memory);
    held -= bytes < held ? bytes : held;
  }
  std::free(memory);
}

}  // namespace

// All of one kind: a sanitizer's own ones do not call each other.
void* operator new(std::size_t bytes) {
  return take_or_throw(bytes);
}
void* operator new[](std::size_t bytes) {
  return take_or_throw(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return take(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return take(bytes);
}
void operator delete(void* memory) noexcept {
  give_back(memory);
}
void operator delete[](void* memory) noexcept {
  give_back(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  give_back(memory);
}
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept {
  give_back(memory);
}
void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept {
  give_back(memory);
}
void operator delete[](void* memory, const std::nothrow_t& /*tag*/) noexcept {
  give_back(memory);
}

namespace outboard::testing {

MemoryBound::MemoryBound(std::size_t most_bytes) noexcept {
  held = 0;
  most_held = most_bytes;
  bounded = true;
}

MemoryBound::~MemoryBound() {
  bounded = false;
}

}  // namespace outboard::testing
