// SPDX-License-Identifier: Apache-2.0
#include "engine/allocation_counter.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OUTBOARD_TEST_OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define OUTBOARD_TEST_OWN_MALLOC 0
#endif
#endif
#ifndef OUTBOARD_TEST_OWN_MALLOC
#define OUTBOARD_TEST_OWN_MALLOC 1
#endif

namespace {

std::atomic<bool> counting{false};
std::atomic<std::uint64_t> count{0};
std::array<void*, 24> first_frames{};
std::atomic<int> first_depth{0};

/// A pool starts its workers when it first needs them, however late that is; what a start takes is
/// no cost of the work. A thread is `late` if its first allocation falls into the counting.
enum class Thread : unsigned char { unknown, early, late };
constinit thread_local Thread thread = Thread::unknown;
constinit thread_local bool starting_another = false;

using StartThread = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
[[maybe_unused]] StartThread real_start() noexcept {
  static const auto start = reinterpret_cast<StartThread>(dlsym(RTLD_NEXT, "pthread_create"));
  return start;
}

[[maybe_unused]] void note() noexcept {
  const bool on = counting.load(std::memory_order_relaxed);
  if (thread == Thread::unknown) thread = on ? Thread::late : Thread::early;
  if (!on || starting_another || thread == Thread::late) return;
  if (count.fetch_add(1, std::memory_order_relaxed) > 0) return;
  first_depth = backtrace(first_frames.data(), static_cast<int>(first_frames.size()));
}

}  // namespace

#if OUTBOARD_TEST_OWN_MALLOC
// glibc's own entry points: what its malloc, calloc, ... are other names of.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t number, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

__attribute__((visibility("default"))) void* malloc(std::size_t size) noexcept {
  note();
  return __libc_malloc(size);
}
__attribute__((visibility("default"))) void* calloc(std::size_t number, std::size_t size) noexcept {
  note();
  return __libc_calloc(number, size);
}
__attribute__((visibility("default"))) void* realloc(void* old, std::size_t size) noexcept {
  note();
  return __libc_realloc(old, size);
}
__attribute__((visibility("default"))) void* memalign(std::size_t alignment,
                                                      std::size_t size) noexcept {
  note();
  return __libc_memalign(alignment, size);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment,
                                                           std::size_t size) noexcept {
  note();
  return __libc_memalign(alignment, size);
}
__attribute__((visibility("default"))) int posix_memalign(void** out, std::size_t alignment,
                                                          std::size_t size) noexcept {
  note();
  void* const memory = __libc_memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}
__attribute__((visibility("default"))) int pthread_create(pthread_t* id,
                                                          const pthread_attr_t* attributes,
                                                          void* (*body)(void*),
                                                          void* argument) noexcept {
  starting_another = true;
  const int status = real_start()(id, attributes, body, argument);
  starting_another = false;
  return status;
}
}
#endif

namespace outboard::testing {

bool allocations_counted() noexcept {
  return OUTBOARD_TEST_OWN_MALLOC != 0;
}

void start_counting() noexcept {
  // backtrace() loads a library the first time it runs.
  std::array<void*, 2> frames{};
  backtrace(frames.data(), static_cast<int>(frames.size()));
  if (thread == Thread::unknown) thread = Thread::early;
  count = 0;
  first_depth = 0;
  counting = true;
}

std::uint64_t stop_counting() noexcept {
  counting = false;
  return count;
}

std::string first_allocation() {
  std::string out;
  char** const names = backtrace_symbols(first_frames.data(), first_depth);
  if (names == nullptr) return out;
  for (int i = 0; i < first_depth; ++i) out += std::string(names[i]) + "\n";
  std::free(static_cast<void*>(names));
  return out;
}

}  // namespace outboard::testing
