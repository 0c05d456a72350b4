// SPDX-License-Identifier: Apache-2.0
/// What the kernels' tests share: each target in turn, replayable numbers, ulps, guarded memory.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "simd/reference.hpp"
#include "simd/target.hpp"
#include "simd/update.hpp"

namespace outboard::simd::testing {

/// A test that runs once on every target of this machine.
class OnEveryTarget : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(force_target(GetParam()));
    ASSERT_EQ(active_target(), GetParam());
  }
  void TearDown() override { ASSERT_TRUE(force_target("")); }
};

inline std::string target_name(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

#define OUTBOARD_ON_EVERY_TARGET(suite)                                                \
  INSTANTIATE_TEST_SUITE_P(Targets, suite,                                             \
                           ::testing::ValuesIn(::outboard::simd::supported_targets()), \
                           ::outboard::simd::testing::target_name)

/// Seed of this run's random numbers; OUTBOARD_TEST_SEED replays one. Print it in a SCOPED_TRACE.
inline std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* value = std::getenv("OUTBOARD_TEST_SEED");
    return value != nullptr ? std::strtoull(value, nullptr, 0) : std::random_device{}();
  }();
  return seed;
}
inline std::string seed_text() {
  return "replay: OUTBOARD_TEST_SEED=" + std::to_string(test_seed());
}

/// The same numbers from every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t bits() { return engine_(); }
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(bits() % limit); }
  float uniform() { return static_cast<float>(bits() >> 40) * 0x1p-24F; }
  float signed_uniform() { return uniform() * 2.0F - 1.0F; }
  /// Any sign and fraction, exponents evenly from `low` to `high`.
  float spread(int low, int high) {
    const int exponent = low + static_cast<int>(below(static_cast<std::size_t>(high - low + 1)));
    const float magnitude = std::ldexp(1.0F + uniform(), exponent);
    return (bits() & 1U) != 0 ? -magnitude : magnitude;
  }
  std::uint16_t finite_half() {
    return static_cast<std::uint16_t>(below(0x7C00) | (bits() & 0x8000U));
  }
  template <class T>
  T pick(const std::vector<T>& values) {
    return values[below(values.size())];
  }

 private:
  std::mt19937_64 engine_;
};

/// Distance between floats around a number.
inline double ulp(double value) {
  const double magnitude = std::max(std::fabs(value), static_cast<double>(FLT_MIN));
  return std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

struct Hyper {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.1;
  int step = 1;
  double coeff = 1.0;
};

inline AdamWScalars make_scalars(const Hyper& hyper) {
  const auto f = [](double value) { return static_cast<float>(value); };
  AdamWScalars s;
  s.beta1 = f(hyper.beta1);
  s.one_minus_beta1 = f(1.0 - hyper.beta1);
  s.beta2 = f(hyper.beta2);
  s.one_minus_beta2 = f(1.0 - hyper.beta2);
  s.eps = f(hyper.eps);
  s.step_size = f(hyper.lr / (1.0 - std::pow(hyper.beta1, hyper.step)));
  s.lr_wd = f(hyper.lr * hyper.weight_decay);
  s.inv_sqrt_bias2 = f(1.0 / std::sqrt(1.0 - std::pow(hyper.beta2, hyper.step)));
  s.coeff = f(hyper.coeff);
  s.exp_avg_sq_floor = f(static_cast<double>(FLT_MIN) / hyper.beta2);
  s.grad_sq_floor = f(std::sqrt(static_cast<double>(FLT_MIN) / (1.0 - hyper.beta2)));
  return s;
}

/// Owned state of one AdamW shard of halves; the weight has its own memory.
struct State {
  explicit State(std::size_t size)
      : grad(size), weight(size), param(size), exp_avg(size), exp_avg_sq(size) {}
  [[nodiscard]] std::size_t size() const { return param.size(); }
  UpdateShard shard() {
    return {.grad = {grad.data(), Format::f16},
            .weight = {weight.data(), Format::f16},
            .param = param,
            .state = {exp_avg, exp_avg_sq}};
  }
  std::vector<std::uint16_t> grad, weight;
  std::vector<float> param, exp_avg, exp_avg_sq;
};

/// One step of AdamW, rounded to nearest.
inline std::uint64_t adamw_step(const UpdateShard& shard, const AdamWScalars& scalars) {
  return update_rule(shard, scalars, {});
}

template <class A, class B>
bool same_bits(const A& a, const B& b) {
  const std::span x(a);
  const std::span y(b);
  return x.size() == y.size() &&
         (x.empty() || std::memcmp(x.data(), y.data(), x.size_bytes()) == 0);
}

inline bool same_result(const State& a, const State& b) {
  return same_bits(a.param, b.param) && same_bits(a.exp_avg, b.exp_avg) &&
         same_bits(a.exp_avg_sq, b.exp_avg_sq) && same_bits(a.weight, b.weight);
}

/// Ordinary values, as of a model in training.
inline State ordinary_state(Random& random, std::size_t size) {
  State state(size);
  for (std::size_t i = 0; i < size; ++i) {
    state.grad[i] = random.finite_half();
    state.param[i] = random.signed_uniform();
    state.exp_avg[i] = random.signed_uniform() * 1e-2F;
    state.exp_avg_sq[i] = random.uniform() * 1e-4F;
  }
  return state;
}

/// `size` elements of T between two pages that cannot be touched; everything else is filled with a
/// pattern that `intact` checks.
template <class T>
class GuardedArray {
 public:
  static constexpr std::byte kCanary{0xA5};

  /// Ends at the upper guard page.
  explicit GuardedArray(std::size_t size) { map(size, 0), place(room_ - size * sizeof(T)); }
  /// Starts `offset` elements behind a 64-byte line, at least 64 bytes from either guard page.
  GuardedArray(std::size_t size, std::size_t offset) {
    map(size, offset * sizeof(T) + 128);
    place(64 + offset * sizeof(T));
  }
  ~GuardedArray() { (void)munmap(base_, bytes_); }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  [[nodiscard]] std::span<T> span() { return {reinterpret_cast<T*>(inside_ + at_), size_}; }
  [[nodiscard]] bool intact() const {
    const auto is_canary = [](std::byte b) { return b == kCanary; };
    return std::all_of(inside_, inside_ + at_, is_canary) &&
           std::all_of(inside_ + at_ + size_ * sizeof(T), inside_ + room_, is_canary);
  }

 private:
  void map(std::size_t size, std::size_t extra) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    size_ = size;
    room_ = (size * sizeof(T) + extra + 64 + page - 1) / page * page;
    bytes_ = room_ + 2 * page;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    inside_ = base_ + page;
    if (mprotect(inside_, room_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    std::fill_n(inside_, room_, kCanary);
  }
  void place(std::size_t at) { at_ = at; }

  std::byte* base_ = nullptr;
  std::byte* inside_ = nullptr;
  std::size_t size_ = 0, room_ = 0, bytes_ = 0, at_ = 0;
};

inline const std::vector<std::size_t> kLengths = {0,  1,  7,  8,  9,    15,   16,   17,  31,
                                                  33, 63, 64, 65, 1023, 1024, 1025, 4097};

}  // namespace outboard::simd::testing
