// SPDX-License-Identifier: Apache-2.0
/// A tensor of more than 2^31 elements, most of it the same few pages of zeros over and over.
#include "simd/digest.hpp"
#include "simd/reduce.hpp"
#include "tests/simd/simd_support.hpp"

namespace outboard::simd::testing {
namespace {

constexpr std::size_t kElems = (std::size_t{1} << 31) + 17;
constexpr std::size_t kWindowBytes = std::size_t{16} << 20;

/// kElems elements of T. Windows share one file's memory but those at 2^31 and at the end, which
/// are their own: zeros written to one shared window are zeros in all.
template <class T>
class ZeroTensor {
 public:
  ZeroTensor() {
    file_ = memfd_create("zeros", 0);
    base_ = static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED || file_ < 0 || ftruncate(file_, kWindowBytes) != 0) {
      throw std::bad_alloc();
    }
    for (std::size_t at = 0; at + kWindowBytes <= kOwnFrom; at += kWindowBytes) {
      if (mmap(base_ + at, kWindowBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
               0) == MAP_FAILED) {
        throw std::bad_alloc();
      }
    }
  }
  ~ZeroTensor() {
    (void)munmap(base_, kBytes);
    (void)close(file_);
  }
  ZeroTensor(const ZeroTensor&) = delete;
  ZeroTensor& operator=(const ZeroTensor&) = delete;
  [[nodiscard]] std::span<T> span() { return {reinterpret_cast<T*>(base_), kElems}; }

 private:
  static constexpr std::size_t kBytes = (kElems * sizeof(T) / kWindowBytes + 1) * kWindowBytes;
  static constexpr std::size_t kOwnFrom = kBytes - 2 * kWindowBytes;
  int file_ = -1;
  std::byte* base_ = nullptr;
};

TEST(LargeTensor, OnlyTheTouchedElementsChange) {
  ZeroTensor<std::uint16_t> slot;
  ZeroTensor<float> param;
  ZeroTensor<float> exp_avg;
  ZeroTensor<float> exp_avg_sq;
  constexpr std::size_t kTouched = 64;
  constexpr std::size_t kFirst = kElems - kTouched;
  State small(kTouched);
  for (std::size_t i = 0; i < kTouched; ++i) {
    small.grad[i] = slot.span()[kFirst + i] = static_cast<std::uint16_t>(0x3C00 + i * 3);
    small.param[i] = param.span()[kFirst + i] = static_cast<float>(i) * 0.25F;
  }
  EXPECT_EQ(reduce_gradient(slot.span()).sum_of_squares,
            reduce_gradient(small.grad).sum_of_squares);

  const AdamWScalars s = make_scalars({});
  (void)adamw_step(small.shard(), s);
  (void)adamw_step({.grad = {slot.span().data(), Format::f16},
                    .weight = {slot.span().data(), Format::f16},
                    .param = param.span(),
                    .state = {exp_avg.span(), exp_avg_sq.span()}},
                   s);
  EXPECT_TRUE(same_bits(param.span().last(kTouched), small.param));
  EXPECT_TRUE(same_bits(exp_avg.span().last(kTouched), small.exp_avg));
  EXPECT_TRUE(same_bits(exp_avg_sq.span().last(kTouched), small.exp_avg_sq));
  EXPECT_TRUE(same_bits(slot.span().last(kTouched), small.weight));
  const auto is_zero = [](float value) { return value == 0.0F; };
  EXPECT_TRUE(std::ranges::all_of(param.span().subspan(kFirst - 1'000'000, 1'000'000), is_zero));
  EXPECT_TRUE(std::ranges::all_of(param.span().first(8'000'000), is_zero));
}

TEST(LargeTensor, NonFiniteElementBeyondTwoToThe31IsNamed) {
  ZeroTensor<std::uint16_t> grad;
  constexpr std::size_t kAt = (std::size_t{1} << 31) + 5;
  grad.span()[kAt] = 0xFC00;
  const GradientReduction result = reduce_gradient(grad.span());
  EXPECT_EQ(result.non_finite, 1U);
  EXPECT_EQ(result.first_non_finite, kAt);
  EXPECT_FALSE(result.first_is_nan);
}

}  // namespace
}  // namespace outboard::simd::testing
