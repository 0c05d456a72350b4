// SPDX-License-Identifier: Apache-2.0
/// A tensor of more than 2^31 elements, most of it the same few pages of zeros over and over.
#include "simd/reduce.hpp"
#include "tests/simd/update_support.hpp"

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

/// One step of everything, in place: `slot` holds gradients and then weights.
template <class Bits>
void expect_only_touched_change(Format format, const std::array<Bits, 2>& grads) {
  ZeroTensor<Bits> slot;
  ZeroTensor<float> param;
  ZeroTensor<float> exp_avg;
  ZeroTensor<float> exp_avg_sq;
  constexpr std::size_t kTouched = 64;
  constexpr std::size_t kFirst = kElems - kTouched;
  Tensor small(kTouched, format, format);
  for (std::size_t i = 0; i < kTouched; ++i) {
    slot.span()[kFirst + i] = grads[i % 2];
    small.param[i] = param.span()[kFirst + i] = static_cast<float>(i) * 0.25F;
  }
  std::memcpy(small.grad.data(), slot.span().data() + kFirst, small.grad.size());
  EXPECT_EQ(reduce_gradient({slot.span().data(), format}, kElems).sum_of_squares,
            reduce_gradient(small.stored(), kTouched).sum_of_squares);

  const UpdateOptions options = {.rounding = {format == Format::bf16, 3}};
  UpdateShard shard = small.shard();
  shard.first_element = kFirst;
  (void)update(shard, make_scalars({}), options);
  (void)update({.grad = {slot.span().data(), format},
                .weight = {slot.span().data(), format},
                .param = param.span(),
                .state = {exp_avg.span(), exp_avg_sq.span()}},
               make_scalars({}), options);
  EXPECT_TRUE(same_bits(param.span().last(kTouched), small.param));
  EXPECT_TRUE(same_bits(exp_avg.span().last(kTouched), small.state[0]));
  EXPECT_TRUE(same_bits(exp_avg_sq.span().last(kTouched), small.state[1]));
  EXPECT_TRUE(same_bits(std::as_bytes(slot.span().last(kTouched)), small.weight));
  const auto is_zero = [](float value) { return value == 0.0F; };
  EXPECT_TRUE(std::ranges::all_of(param.span().subspan(kFirst - 1'000'000, 1'000'000), is_zero));
  EXPECT_TRUE(std::ranges::all_of(param.span().first(8'000'000), is_zero));
}

TEST(LargeTensor, OnlyTheTouchedElementsChange) {
  expect_only_touched_change<std::uint16_t>(Format::f16, {0x3C00, 0x3C03});
}
TEST(LargeTensor, OnlyTheTouchedElementsChangeInBf16AtRandom) {
  expect_only_touched_change<std::uint16_t>(Format::bf16, {0x3F80, 0xBF83});
}
TEST(LargeTensor, OnlyTheTouchedElementsChangeInFp32) {
  expect_only_touched_change<float>(Format::f32, {1.0F, -1.25F});
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
