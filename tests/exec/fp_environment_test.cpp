// SPDX-License-Identifier: Apache-2.0
/// Tasks see the default floating-point environment, whatever the threads around them use.
#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <atomic>
#include <cfenv>
#include <limits>
#include <thread>

#include "exec/rig.hpp"

namespace outboard::exec {
namespace {

class FpEnvironment : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Executors, FpEnvironment, ::testing::ValuesIn(all_kinds()), name_of);

#if defined(__x86_64__)
constexpr unsigned kFlushBits = 0x8040;  // flush-to-zero and denormals-are-zero
void flush_subnormals() {
  _mm_setcsr(_mm_getcsr() | kFlushBits);
}
#else
void flush_subnormals() {}
#endif

bool keeps_subnormals() {
  volatile float least = std::numeric_limits<float>::denorm_min();
  volatile float smallest_normal = std::numeric_limits<float>::min();
  return smallest_normal * 0.5f != 0.0f && least + least != 0.0f;
}

bool rounds_to_nearest() {
  volatile float one = 1.0f;
  volatile float sliver = 0x1p-30f;
  return std::fegetround() == FE_TONEAREST && one + sliver == 1.0f;
}

void make_hostile() {
  std::fesetround(FE_UPWARD);
  flush_subnormals();
}

struct Witness {
  std::atomic<int> wrong = 0;
  std::atomic<int> bodies = 0;
  std::atomic<int> finished = 0;

  void look() noexcept {
    if (!keeps_subnormals() || !rounds_to_nearest()) wrong += 1;
  }
  static void run(void* context, std::uint64_t, std::uint32_t) noexcept {
    auto& self = *static_cast<Witness*>(context);
    self.look();
    self.bodies += 1;
    make_hostile();  // must not reach done, the next part or the next task
  }
  static void end(void* context, std::uint64_t) noexcept {
    auto& self = *static_cast<Witness*>(context);
    self.look();
    make_hostile();
    self.finished += 1;
  }
};

TEST_P(FpEnvironment, IsTheDefaultInTasksAndTheCallersOwnOutside) {
  std::thread([kind = GetParam()] {
    make_hostile();
    Witness witness;
    Rig rig(kind, topology::synthetic("numa:2 core:2 pu:1"), 2);
    for (std::uint32_t i = 0; i < 40; ++i) {
      rig->post({.node = i % 2,
                 .parts = 2,
                 .body = Witness::run,
                 .done = Witness::end,
                 .context = &witness});
    }
    rig.until([&] { return witness.finished == 40; });
    EXPECT_EQ(witness.wrong, 0);
    EXPECT_EQ(witness.bodies, 80);
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
#if defined(__x86_64__)
    EXPECT_FALSE(keeps_subnormals());
#endif
  }).join();
}

}  // namespace
}  // namespace outboard::exec
