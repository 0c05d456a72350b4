// SPDX-License-Identifier: Apache-2.0
/// The maths of AdamW on one vector, and its walk over a shard.
#include "simd/highway_targets.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "simd/adamw.hpp"

#include "hwy/highway.h"

#include "simd/fp16-inl.hpp"

#if defined(OUTBOARD_SIMD_ADAMW_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_ADAMW_INL_HPP_
#undef OUTBOARD_SIMD_ADAMW_INL_HPP_
#else
#define OUTBOARD_SIMD_ADAMW_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Where one vector's elements lie. Grad: std::uint16_t for FP16 bits, or float.
template <class Grad>
struct AdamWPointers {
  const Grad* grad;
  float* param;
  float* exp_avg;
  float* exp_avg_sq;
  std::uint16_t* weight_fp16;
};

/// Below 2^-100 in magnitude becomes +0: far above the subnormals, so that products with ordinary
/// factors stay normal, and far below anything that moves a weight.
template <class DF, class V>
HWY_INLINE V FlushTiny(DF df, V value) {
  return hn::IfThenZeroElse(hn::Lt(hn::Abs(value), hn::Set(df, 0x1p-100f)), value);
}

template <class DF, class V>
HWY_INLINE V NextExpAvg(DF df, const AdamWScalars& scalars, V old, V grad) {
  return hn::Add(hn::Mul(hn::Set(df, scalars.beta1), FlushTiny(df, old)),
                 hn::Mul(hn::Set(df, scalars.one_minus_beta1), grad));
}

template <class DF, class V>
HWY_INLINE V NextExpAvgSq(DF df, const AdamWScalars& scalars, V old, V grad) {
  const auto kept = hn::IfThenZeroElse(hn::Lt(old, hn::Set(df, scalars.exp_avg_sq_floor)), old);
  const auto big_grad =
      hn::IfThenZeroElse(hn::Lt(hn::Abs(grad), hn::Set(df, scalars.grad_sq_floor)), grad);
  return hn::Add(hn::Mul(hn::Set(df, scalars.beta2), kept),
                 hn::Mul(hn::Mul(hn::Set(df, scalars.one_minus_beta2), big_grad), big_grad));
}

template <class DF, class V>
HWY_INLINE V NextParam(DF df, const AdamWScalars& scalars, V old, V exp_avg, V exp_avg_sq) {
  const auto denominator = hn::Add(
      hn::Mul(hn::Sqrt(exp_avg_sq), hn::Set(df, scalars.inv_sqrt_bias2)), hn::Set(df, scalars.eps));
  const auto update =
      hn::Add(hn::Mul(hn::Set(df, scalars.lr_wd), FlushTiny(df, old)),
              hn::Mul(hn::Set(df, scalars.step_size), hn::Div(exp_avg, denominator)));
  return hn::Sub(old, update);
}

template <class DF>
HWY_INLINE hn::Vec<DF> LoadGradient(DF df, const std::uint16_t* grad) {
  return FromHalf(df, hn::LoadU(hn::Rebind<std::uint16_t, DF>(), grad));
}

/// A subnormal gradient is read as +0. (A subnormal half is an ordinary float.)
template <class DF>
HWY_INLINE hn::Vec<DF> LoadGradient(DF df, const float* grad) {
  const auto value = hn::LoadU(df, grad);
  return hn::IfThenZeroElse(hn::Lt(hn::Abs(value), hn::Set(df, 0x1p-126f)), value);
}

/// Updates one whole vector in place. Everything is read before the weight is written, since the
/// weight may lie where the gradient does. @return finite masters that overflowed as FP16.
template <class DF, class Grad>
HWY_INLINE std::size_t AdamWVector(DF df, const AdamWScalars& scalars,
                                   const AdamWPointers<Grad>& at) {
  const hn::Rebind<std::uint16_t, DF> dh;
  const auto grad = FlushTiny(df, hn::Mul(LoadGradient(df, at.grad), hn::Set(df, scalars.coeff)));
  const auto exp_avg = NextExpAvg(df, scalars, hn::LoadU(df, at.exp_avg), grad);
  const auto exp_avg_sq = NextExpAvgSq(df, scalars, hn::LoadU(df, at.exp_avg_sq), grad);
  const auto param = NextParam(df, scalars, hn::LoadU(df, at.param), exp_avg, exp_avg_sq);
  hn::StoreU(exp_avg, df, at.exp_avg);
  hn::StoreU(exp_avg_sq, df, at.exp_avg_sq);
  hn::StoreU(param, df, at.param);
  hn::StoreU(ToHalf(df, param), dh, at.weight_fp16);
  return CountHalfOverflow(df, param);
}

/// The last `count` elements, less than a vector, through padded copies: zeros stay zeros.
template <class DF, class Grad>
HWY_INLINE std::size_t AdamWTail(DF df, const AdamWScalars& scalars, const AdamWPointers<Grad>& at,
                                 std::size_t count) {
  constexpr std::size_t kMaxLanes = hn::MaxLanes(DF());
  HWY_ALIGN float param[kMaxLanes] = {};
  HWY_ALIGN float exp_avg[kMaxLanes] = {};
  HWY_ALIGN float exp_avg_sq[kMaxLanes] = {};
  HWY_ALIGN Grad grad[kMaxLanes] = {};
  HWY_ALIGN std::uint16_t half[kMaxLanes] = {};
  std::copy_n(at.grad, count, grad);
  std::copy_n(at.param, count, param);
  std::copy_n(at.exp_avg, count, exp_avg);
  std::copy_n(at.exp_avg_sq, count, exp_avg_sq);
  const AdamWPointers<Grad> padded = {grad, param, exp_avg, exp_avg_sq, half};
  const std::size_t overflowed = AdamWVector(df, scalars, padded);
  std::copy_n(param, count, at.param);
  std::copy_n(exp_avg, count, at.exp_avg);
  std::copy_n(exp_avg_sq, count, at.exp_avg_sq);
  std::copy_n(half, count, at.weight_fp16);
  return overflowed;
}

template <class Grad>
HWY_INLINE std::uint64_t AdamWWalk(const AdamWPointers<Grad>& start, std::size_t size,
                                   const AdamWScalars& scalars) {
  // Copies whose address nobody else has: stores to the state cannot change them, so the loop keeps
  // scalars and pointers in registers.
  const AdamWScalars own = scalars;
  const auto at = [start](std::size_t i) {
    return AdamWPointers<Grad>{start.grad + i, start.param + i, start.exp_avg + i,
                               start.exp_avg_sq + i, start.weight_fp16 + i};
  };
  const hn::ScalableTag<float> df;
  const std::size_t lanes = hn::Lanes(df);
  std::uint64_t overflowed = 0;
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) overflowed += AdamWVector(df, own, at(i));
  if (i < size) overflowed += AdamWTail(df, own, at(i), size - i);
  return overflowed;
}

inline std::uint64_t AdamWStep(const AdamWShard& shard, const AdamWScalars& scalars) {
  const auto pointers = [&shard](const auto* grad) {
    using Grad = std::remove_cvref_t<decltype(*grad)>;
    return AdamWPointers<Grad>{grad, shard.param.data(), shard.exp_avg.data(),
                               shard.exp_avg_sq.data(), shard.weight_fp16.data()};
  };
  const std::size_t size = shard.param.size();
  if (!shard.grad_fp32.empty()) return AdamWWalk(pointers(shard.grad_fp32.data()), size, scalars);
  return AdamWWalk(pointers(shard.grad_fp16.data()), size, scalars);
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_ADAMW_INL_HPP_
