// SPDX-License-Identifier: Apache-2.0
/// Posting and running tasks allocates nothing once the executor is warm. Every thread's calls of
/// malloc count, also those of libraries.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "exec/rig.hpp"

namespace {
std::atomic<bool> counting = false;
std::atomic<int> allocations = 0;

void count() noexcept {
  if (counting.load(std::memory_order_relaxed)) allocations += 1;
}
}  // namespace

// Default visibility: only then do the shared libraries call these too.
#pragma GCC visibility push(default)
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* old, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) {
  count();
  return __libc_calloc(number, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  count();
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) {
  count();
  *result = __libc_memalign(alignment, bytes);
  return *result == nullptr;
}
}
#pragma GCC visibility pop

namespace outboard::exec {
namespace {

class Allocation : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Executors, Allocation, ::testing::ValuesIn(all_kinds()), name_of);

struct Relay {
  Executor* executor = nullptr;
  std::atomic<int> finished = 0;

  Task task(std::uint32_t node, std::uint64_t more) {
    return {.node = node,
            .priority = static_cast<std::int64_t>(more % 3),
            .parts = 3,
            .cost_elems = 5,
            .body = [](void*, std::uint64_t, std::uint32_t) noexcept {},
            .done = end,
            .context = this,
            .argument = more};
  }
  static void end(void* context, std::uint64_t more) noexcept {
    auto& self = *static_cast<Relay*>(context);
    if (more > 0) self.executor->post(self.task(static_cast<std::uint32_t>(more % 2), more - 1));
    self.finished += 1;
  }
};

void run_tasks(Rig& rig, Relay& relay) {
  relay.finished = 0;
  for (std::uint32_t i = 0; i < 100; ++i) rig->post(relay.task(i % 2, 9));
  rig.until([&relay] { return relay.finished == 1000; });
}

TEST_P(Allocation, NoneInAThousandTasksAfterWarmUp) {
  Relay relay;
  Rig rig(GetParam(), topology::synthetic("numa:2 core:2 pu:1"), 2);
  relay.executor = &*rig;
  rig->reserve(100);
  run_tasks(rig, relay);
  allocations = 0;
  counting = true;
  run_tasks(rig, relay);
  counting = false;
  EXPECT_EQ(allocations, 0);
}

TEST(Counting, SeesAnAllocation) {
  allocations = 0;
  counting = true;
  void* volatile plain = std::malloc(100);  // volatile: or the compiler drops the pair
  std::string* volatile owned = new std::string(100, 'x');
  delete owned;
  std::free(plain);
  counting = false;
  EXPECT_GE(allocations, 2);
}

}  // namespace
}  // namespace outboard::exec
