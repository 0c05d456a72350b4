// SPDX-License-Identifier: Apache-2.0
/// The one walk over a shard that every rule shares: read, update, round, store.
///
/// A rule is a struct with
///   Scalars                        its scalars
///   kStates                        how many of the shard's state streams it has (0 to 2)
///   kReadsGradient, kWritesState   false for a phase that does not
///   Step(df, scalars, grad, param, state0, state1)   the maths on one vector, in place
/// `grad` is as it was stored (a subnormal BF16 or FP32 reads as +0), not yet scaled.
#include "simd/highway_targets.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "simd/update.hpp"

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "simd/formats-inl.hpp"
#include "simd/lanes-inl.hpp"
#include "simd/random-inl.hpp"
#include "simd/thresholds-inl.hpp"

#if defined(OUTBOARD_SIMD_UPDATE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_UPDATE_INL_HPP_
#undef OUTBOARD_SIMD_UPDATE_INL_HPP_
#else
#define OUTBOARD_SIMD_UPDATE_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Gradients as line g reads them, from their bits. A subnormal half is an ordinary float.
template <class DF>
HWY_INLINE hn::Vec<DF> GradientOf(DF df, F16 /*format*/,
                                  hn::Vec<hn::Rebind<std::uint16_t, DF>> bits) {
  return FromHalf(df, bits);
}
/// Zeros are put in on 16 bits, where a vector is half as wide.
template <class DF>
HWY_INLINE hn::Vec<DF> GradientOf(DF df, BF16 /*format*/,
                                  hn::Vec<hn::Rebind<std::uint16_t, DF>> bits) {
  const hn::RebindToUnsigned<DF> du;
#if HWY_TARGET == HWY_AVX3
  const __mmask16 normal = _mm256_test_epi16_mask(bits.raw, _mm256_set1_epi16(0x7F80));
  const hn::Vec<decltype(du)> wide{_mm512_maskz_cvtepu16_epi32(normal, bits.raw)};
#else
  const hn::Rebind<std::uint16_t, DF> dh;
  const auto is_tiny = hn::Eq(hn::And(bits, hn::Set(dh, 0x7F80)), hn::Zero(dh));
  const auto wide = hn::PromoteTo(du, hn::IfThenZeroElse(is_tiny, bits));
#endif
  return hn::BitCast(df, hn::ShiftLeft<16>(wide));
}
template <class DF>
HWY_INLINE hn::Vec<DF> GradientOf(DF df, F32 /*format*/, hn::Vec<DF> value) {
  return FlushBelow(df, value, 0x1p-126F);
}

template <class DF, class Format, class Lanes>
HWY_INLINE hn::Vec<DF> LoadGradient(DF df, Format format, const typename Format::Bits* from,
                                    Lanes lanes) {
  return GradientOf(df, format, lanes.Load(hn::Rebind<typename Format::Bits, DF>(), from));
}

/// How a weight is made from its master. `i`: of the vector's first element, in the walk.
/// Bounded() is the same where the magnitude is below Format::kLargest, and costs less.
template <class Format>
struct RoundNearest {
  template <class DF>
  HWY_INLINE auto Bounded(DF df, hn::Vec<DF> value, std::uint32_t /*i*/) const {
    return BoundedToNearest(df, Format(), value);
  }
  template <class DF>
  HWY_INLINE auto operator()(DF df, hn::Vec<DF> value, std::uint32_t /*i*/) const {
    return ToNearest(df, Format(), value);
  }
  void Advance(std::size_t /*elements*/) {}
};
template <class Format>
struct RoundRandom {
  RandomKey key;
  std::uint32_t first;  ///< index in the parameter, modulo 2^32, of the walk's first element
  template <class DF>
  HWY_INLINE auto Bounded(DF df, hn::Vec<DF> value, std::uint32_t i) const {
    return BoundedToRandom(df, Format(), value, Bits(df, i));
  }
  template <class DF>
  HWY_INLINE auto operator()(DF df, hn::Vec<DF> value, std::uint32_t i) const {
    return ToRandom(df, Format(), value, Bits(df, i));
  }
  void Advance(std::size_t elements) { first += static_cast<std::uint32_t>(elements); }

 private:
  template <class DF>
  HWY_INLINE auto Bits(DF /*df*/, std::uint32_t i) const {
    return RandomBits(hn::RebindToUnsigned<DF>(), key, first + i);
  }
};

/// Where the elements lie; streams that there are not stay null.
template <class Grad, class Weight>
struct Streams {
  const typename Grad::Bits* grad = nullptr;
  typename Weight::Bits* weight = nullptr;
  float* param = nullptr;
  float* state0 = nullptr;
  float* state1 = nullptr;
  float* ema = nullptr;
};

/// All that stays the same along a walk.
template <class Rule, class Rounding>
struct Step {
  typename Rule::Scalars scalars;
  Rounding rounding;
  float ema_one_minus_decay;
  bool stream;  ///< weights past the cache, which else reads their lines first: aligned as a vector
};

template <class DF, class Lanes>
HWY_INLINE void UpdateEma(DF df, float one_minus_decay, hn::Vec<DF> param, float* ema,
                          Lanes lanes) {
  const auto old = lanes.Load(df, ema);
  const auto way = FlushTiny(df, hn::Sub(param, old));
  lanes.Store(hn::Add(old, hn::Mul(hn::Set(df, one_minus_decay), way)), df, ema);
}

/// Updates the vector from element `i` on in place, all but the weight, which may lie where the
/// gradient does. @return the new masters.
template <class Rule, class DF, class Rounding, class Grad, class Weight, class Lanes>
HWY_INLINE hn::Vec<DF> StepMaster(DF df, const Step<Rule, Rounding>& step,
                                  const Streams<Grad, Weight>& at, std::size_t i, Lanes lanes) {
  auto grad = hn::Zero(df);
  auto param = lanes.Load(df, at.param + i);
  auto state0 = hn::Zero(df);
  auto state1 = hn::Zero(df);
  if constexpr (Rule::kReadsGradient) grad = LoadGradient(df, Grad(), at.grad + i, lanes);
  if constexpr (Rule::kStates > 0) state0 = lanes.Load(df, at.state0 + i);
  if constexpr (Rule::kStates > 1) state1 = lanes.Load(df, at.state1 + i);
  Rule::Step(df, step.scalars, grad, param, state0, state1);
  if constexpr (Rule::kWritesState && Rule::kStates > 0) lanes.Store(state0, df, at.state0 + i);
  if constexpr (Rule::kWritesState && Rule::kStates > 1) lanes.Store(state1, df, at.state1 + i);
  lanes.Store(param, df, at.param + i);
  if (at.ema != nullptr) UpdateEma(df, step.ema_one_minus_decay, param, at.ema + i, lanes);
  return param;
}

/// One vector of each stream on the stack; zeros where there is no element, which stay zeros.
template <class DF, class Grad, class Weight>
struct Padded {
  static constexpr std::size_t kMaxLanes = hn::MaxLanes(DF());
  HWY_ALIGN typename Grad::Bits grad[kMaxLanes] = {};
  HWY_ALIGN typename Weight::Bits weight[kMaxLanes] = {};
  HWY_ALIGN float param[kMaxLanes] = {};
  HWY_ALIGN float state0[kMaxLanes] = {};
  HWY_ALIGN float state1[kMaxLanes] = {};
  HWY_ALIGN float ema[kMaxLanes] = {};
};

/// Copies nothing for a stream that there is not.
template <class T>
HWY_INLINE void CopyIn(const T* stream, std::size_t first, std::size_t count, T* padded) {
  if (stream != nullptr) std::copy_n(stream + first, count, padded);
}
template <class T>
HWY_INLINE void CopyOut(const T* padded, std::size_t count, T* stream, std::size_t first) {
  if (stream != nullptr) std::copy_n(padded, count, stream + first);
}

#if OUTBOARD_SIMD_HAS_FIRST_LANES
/// `count` elements from element `i` on, less than a vector.
template <class Rule, class DF, class Rounding, class Grad, class Weight>
HWY_INLINE std::size_t StepPart(DF df, const Step<Rule, Rounding>& step,
                                const Streams<Grad, Weight>& at, std::size_t i, std::size_t count) {
  const FirstLanes lanes = {count};
  const auto master = StepMaster(df, step, at, i, lanes);
  const auto weight = step.rounding(df, master, static_cast<std::uint32_t>(i));
  lanes.Store(weight, hn::Rebind<typename Weight::Bits, DF>(), at.weight + i);
  return CountOverflow(df, Weight(), master);
}
#else
/// `count` elements from element `i` on, less than a vector, through padded copies.
/// By value, so that the caller's copies stay in registers.
template <class Rule, class DF, class Rounding, class Grad, class Weight>
HWY_NOINLINE std::size_t StepPart(DF df, Step<Rule, Rounding> step, Streams<Grad, Weight> at,
                                  std::size_t i, std::size_t count) {
  Padded<DF, Grad, Weight> padded;
  CopyIn(at.grad, i, count, padded.grad);
  CopyIn<float>(at.param, i, count, padded.param);
  CopyIn<float>(at.state0, i, count, padded.state0);
  CopyIn<float>(at.state1, i, count, padded.state1);
  CopyIn<float>(at.ema, i, count, padded.ema);
  step.rounding.Advance(i);
  const Streams<Grad, Weight> inside = {padded.grad,   padded.weight,
                                        padded.param,  padded.state0,
                                        padded.state1, at.ema != nullptr ? padded.ema : nullptr};
  const auto master = StepMaster(df, step, inside, 0, AllLanes());
  const hn::Rebind<typename Weight::Bits, DF> dw;
  hn::StoreU(step.rounding(df, master, 0), dw, padded.weight);
  CopyOut(padded.param, count, at.param, i);
  if constexpr (Rule::kWritesState) {
    CopyOut(padded.state0, count, at.state0, i);
    CopyOut(padded.state1, count, at.state1, i);
  }
  CopyOut(padded.ema, count, at.ema, i);
  CopyOut(padded.weight, count, at.weight, i);
  return CountOverflow(df, Weight(), master);
}
#endif

/// Makes the weights of whole vectors from element `i` to `end` once more, whatever the masters.
/// @return finite masters that overflowed as weights.
template <class Rule, class DF, class Rounding, class Grad, class Weight>
HWY_NOINLINE std::uint64_t RoundAgain(DF df, Step<Rule, Rounding> step, Streams<Grad, Weight> at,
                                      std::size_t i, std::size_t end) {
  const hn::Rebind<typename Weight::Bits, DF> dw;
  std::uint64_t overflowed = 0;
  for (; i < end; i += hn::Lanes(df)) {
    const auto master = hn::LoadU(df, at.param + i);
    hn::StoreU(step.rounding(df, master, static_cast<std::uint32_t>(i)), dw, at.weight + i);
    overflowed += CountOverflow(df, Weight(), master);
  }
  return overflowed;
}

/// Updates whole vectors from element `i` to `end`. Whether a weight may not be finite is asked
/// once for all of them, of the largest master. @return finite masters that overflowed as weights.
template <class Rule, class DF, class Rounding, class Grad, class Weight>
HWY_INLINE std::uint64_t StepVectors(DF df, const Step<Rule, Rounding>& step,
                                     const Streams<Grad, Weight>& at, std::size_t i,
                                     std::size_t end) {
  const hn::RebindToSigned<DF> di;  // magnitudes compare as their bits do
  const hn::Rebind<typename Weight::Bits, DF> dw;
  const std::size_t begin = i;
  auto largest = hn::Zero(di);
  for (; i < end; i += hn::Lanes(df)) {
    const auto master = StepMaster(df, step, at, i, AllLanes());
    const auto weight = step.rounding.Bounded(df, master, static_cast<std::uint32_t>(i));
    if (step.stream) {
      hn::Stream(weight, dw, at.weight + i);
    } else {
      hn::StoreU(weight, dw, at.weight + i);
    }
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(master)));
  }
  if constexpr (!std::is_same_v<Weight, F32>) {
    const auto bound = hn::BitCast(di, hn::Set(df, Weight::kLargest));
    if (HWY_UNLIKELY(!hn::AllTrue(di, hn::Lt(largest, bound)))) {
      return RoundAgain(df, step, at, begin, end);
    }
  }
  return 0;
}

/// Elements before the first one whose weight lies aligned as a vector of weights.
template <class DW>
HWY_INLINE std::size_t Misaligned(DW dw, const hn::TFromD<DW>* weight) {
  const std::size_t vector_bytes = hn::Lanes(dw) * sizeof(hn::TFromD<DW>);
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(weight) % vector_bytes;
  return beyond == 0 ? 0 : (vector_bytes - beyond) / sizeof(hn::TFromD<DW>);
}

/// Elements before `end` whose weights share their line of the cache with others behind it, whole
/// vectors. Such a line does not go past the cache: completing it later costs more than all of a
/// small shard's stores.
template <class DW>
HWY_INLINE std::size_t InLastLine(DW dw, const hn::TFromD<DW>* end) {
  constexpr std::size_t kLineBytes = 64;
  const std::size_t elements =
      reinterpret_cast<std::uintptr_t>(end) % kLineBytes / sizeof(hn::TFromD<DW>);
  return elements / hn::Lanes(dw) * hn::Lanes(dw);
}

/// Vectors between two looks at the largest master: few enough that they are still in the cache if
/// they have to be rounded again.
inline constexpr std::size_t kRoundVectors = 256;

template <class Rule, class Rounding, class Grad, class Weight>
HWY_INLINE std::uint64_t Walk(const Step<Rule, Rounding>& step, const Streams<Grad, Weight>& start,
                              std::size_t size) {
  // Copies whose address nobody else has: stores to the state cannot change them, so the loop keeps
  // scalars and pointers in registers.
  Step<Rule, Rounding> own = step;
  const Streams<Grad, Weight> at = start;
  const hn::ScalableTag<float> df;
  const hn::Rebind<typename Weight::Bits, decltype(df)> dw;
  const std::size_t lanes = hn::Lanes(df);
  std::uint64_t overflowed = 0;
  std::size_t i = own.stream ? std::min(Misaligned(dw, at.weight), size) : 0;
  if (i > 0) overflowed += StepPart(df, own, at, 0, i);
  const std::size_t whole = i + (size - i) / lanes * lanes;
  const std::size_t lines = whole - std::min(whole - i, InLastLine(dw, at.weight + whole));
  for (std::size_t end; i < whole; i = end) {
    own.stream = step.stream && i < lines;
    end = std::min(i < lines ? lines : whole, i + kRoundVectors * lanes);
    overflowed += StepVectors(df, own, at, i, end);
  }
  if (i < size) overflowed += StepPart(df, own, at, i, size - i);
  return overflowed;
}

template <class Rule, class Grad, class Weight>
HWY_INLINE Streams<Grad, Weight> StreamsOf(const UpdateShard& shard) {
  Streams<Grad, Weight> streams;
  if (Rule::kReadsGradient) streams.grad = static_cast<const typename Grad::Bits*>(shard.grad.data);
  streams.weight = static_cast<typename Weight::Bits*>(shard.weight.data);
  streams.param = shard.param.data();
  if (Rule::kStates > 0) streams.state0 = shard.state[0].data();
  if (Rule::kStates > 1) streams.state1 = shard.state[1].data();
  if (!shard.ema.empty()) streams.ema = shard.ema.data();
  return streams;
}

template <class Rule, class Grad, class Format>
inline std::uint64_t UpdateNearest(const UpdateShard& shard, const typename Rule::Scalars& scalars,
                                   const UpdateOptions& options) {
  const Step<Rule, RoundNearest<Format>> step = {
      scalars, {}, options.ema_one_minus_decay, shard.weight.data != shard.grad.data};
  return Walk(step, StreamsOf<Rule, Grad, Format>(shard), shard.param.size());
}

/// Only for shards along which the upper half of the element's index, part of the key, stays.
template <class Rule, class Grad, class Format>
inline std::uint64_t UpdateRandom(const UpdateShard& shard, const typename Rule::Scalars& scalars,
                                  const UpdateOptions& options) {
  const auto first = static_cast<std::uint32_t>(shard.first_element);
  const Step<Rule, RoundRandom<Format>> step = {
      scalars,
      {KeyOf(options.rounding.key, shard.first_element >> 32), first},
      options.ema_one_minus_decay,
      shard.weight.data != shard.grad.data};
  return Walk(step, StreamsOf<Rule, Grad, Format>(shard), shard.param.size());
}

template <class Rule, class Grad>
inline std::uint64_t UpdateFrom(const UpdateShard& shard, const typename Rule::Scalars& scalars,
                                const UpdateOptions& options) {
  const bool random = options.rounding.on;
  switch (shard.weight.format) {
    case Format::f16:
      return random ? UpdateRandom<Rule, Grad, F16>(shard, scalars, options)
                    : UpdateNearest<Rule, Grad, F16>(shard, scalars, options);
    case Format::bf16:
      return random ? UpdateRandom<Rule, Grad, BF16>(shard, scalars, options)
                    : UpdateNearest<Rule, Grad, BF16>(shard, scalars, options);
    case Format::f32:
      break;
  }
  return UpdateNearest<Rule, Grad, F32>(shard, scalars, options);
}

template <class Rule>
inline std::uint64_t UpdatePiece(const UpdateShard& shard, const typename Rule::Scalars& scalars,
                                 const UpdateOptions& options) {
  if (!Rule::kReadsGradient || shard.grad.format == Format::f16) {
    return UpdateFrom<Rule, F16>(shard, scalars, options);
  }
  if (shard.grad.format == Format::bf16) return UpdateFrom<Rule, BF16>(shard, scalars, options);
  return UpdateFrom<Rule, F32>(shard, scalars, options);
}

/// Elements [first, first + count) of a shard.
inline UpdateShard Piece(const UpdateShard& shard, std::size_t first, std::size_t count) {
  const auto cut = [&](std::span<float> all) {
    return all.empty() ? all : all.subspan(first, count);
  };
  const auto* grad = static_cast<const std::byte*>(shard.grad.data);
  auto* weight = static_cast<std::byte*>(shard.weight.data);
  return {.grad = {grad == nullptr ? nullptr : grad + first * format_bytes(shard.grad.format),
                   shard.grad.format},
          .weight = {weight + first * format_bytes(shard.weight.format), shard.weight.format},
          .param = cut(shard.param),
          .state = {cut(shard.state[0]), cut(shard.state[1])},
          .ema = cut(shard.ema),
          .first_element = shard.first_element + first};
}

/// One step of one rule; chooses the walk by the formats.
template <class Rule>
inline std::uint64_t Update(const UpdateShard& shard, const typename Rule::Scalars& scalars,
                            const UpdateOptions& options) {
  constexpr std::uint64_t kSpan = std::uint64_t{1} << 32;
  const std::uint64_t size = shard.param.size();
  std::uint64_t overflowed = 0;
  for (std::uint64_t done = 0; done < size;) {
    const std::uint64_t left = kSpan - (shard.first_element + done) % kSpan;
    const std::uint64_t count = std::min(size - done, left);
    UpdateShard piece = Piece(shard, done, count);
    if (options.ema_one_minus_decay == 0.0F) piece.ema = {};
    overflowed += UpdatePiece<Rule>(piece, scalars, options);
    done += count;
  }
  // Stores past the cache are not ordered with later ones: whoever is told must see them.
  if (shard.weight.data != shard.grad.data) hwy::FlushStream();
  return overflowed;
}

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_UPDATE_INL_HPP_
