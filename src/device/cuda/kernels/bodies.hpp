// SPDX-License-Identifier: Apache-2.0
/// What one thread of each kernel does, on the rules' own sources (one_lane/hwy/highway.h). The
/// same text compiles for the host, where tests hold it against the kernels of the processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/kernel_arguments.hpp"

// First the stand-in for Highway, by the include path.
#include "simd/digest-inl.hpp"
#include "simd/reduce-inl.hpp"
#include "simd/rules/adagrad-inl.hpp"
#include "simd/rules/adam-inl.hpp"
#include "simd/rules/adamw-inl.hpp"
#include "simd/rules/lamb-inl.hpp"
#include "simd/rules/lion-inl.hpp"
#include "simd/rules/sgd-inl.hpp"

#if defined(__CUDACC__)
#define OUTBOARD_UNROLL _Pragma("unroll")
#else
#define OUTBOARD_UNROLL
#endif

namespace outboard::device::cuda::kernels {

namespace lane = simd::HWY_NAMESPACE;
using FloatTag = hwy::HWY_NAMESPACE::ScalableTag<float>;

/// A thread among those that share one kernel's elements.
struct Place {
  std::uint64_t thread;
  std::uint64_t threads;
};

/// Elements that a thread takes at once: 16 bytes of a 16-bit format.
inline constexpr unsigned kChunk = 8;

struct alignas(16) Words {
  std::uint32_t word[4];
};

/// Whether chunks of the stream can be moved 16 bytes at a time.
HWY_INLINE bool is_aligned(const void* stream) {
  return reinterpret_cast<std::uintptr_t>(stream) % 16 == 0;
}

/// A chunk in registers, from memory and back; the first `count` elements if it is the last one, or
/// all of them one by one where the stream is not aligned. A null stream reads as zeros.
template <class T>
struct Chunk {
  static constexpr unsigned kParts = kChunk * sizeof(T) / sizeof(Words);
  alignas(16) T at[kChunk];

  HWY_INLINE void load(const T* from, std::uint64_t first, unsigned count, bool aligned) {
    if (from != nullptr && aligned && count == kChunk) {
      const auto* const parts = reinterpret_cast<const Words*>(from + first);
      for (unsigned i = 0; i < kParts; ++i) reinterpret_cast<Words*>(at)[i] = parts[i];
      return;
    }
    for (unsigned i = 0; i < kChunk; ++i) {
      at[i] = from != nullptr && i < count ? from[first + i] : T(0);
    }
  }
  HWY_INLINE void store(T* to, std::uint64_t first, unsigned count, bool aligned) const {
    if (to == nullptr) return;
    if (aligned && count == kChunk) {
      auto* const parts = reinterpret_cast<Words*>(to + first);
      for (unsigned i = 0; i < kParts; ++i) parts[i] = reinterpret_cast<const Words*>(at)[i];
      return;
    }
    for (unsigned i = 0; i < kChunk; ++i) {
      if (i < count) to[first + i] = at[i];
    }
  }
};

/// Calls use(first, count) for each of the thread's chunks.
template <class Use>
HWY_INLINE void for_each_chunk(std::uint64_t elems, const Place& place, Use use) {
  for (std::uint64_t first = place.thread * kChunk; first < elems;
       first += place.threads * kChunk) {
    const std::uint64_t left = elems - first;
    use(first, left < kChunk ? static_cast<unsigned>(left) : kChunk);
  }
}

/// Calls use(format) with the format as a type.
template <class Use>
HWY_INLINE void with_format(ElementFormat format, Use use) {
  if (format == ElementFormat::f16) {
    use(lane::F16());
  } else if (format == ElementFormat::bf16) {
    use(lane::BF16());
  } else {
    use(lane::F32());
  }
}

// --- updates ---

/// How the weight at `index` of the parameter is made of its master.
template <class Weight>
struct Rounding {
  bool stochastic;
  std::uint64_t key;

  HWY_INLINE typename Weight::Bits operator()(float master, std::uint64_t index) const {
    if (!stochastic) return lane::ToNearest(FloatTag(), Weight(), master);
    const lane::RoundRandom<Weight> random = {lane::KeyOf(key, index >> 32),
                                              static_cast<std::uint32_t>(index)};
    return random(FloatTag(), master, 0);
  }
};
/// The master itself: there is nothing to draw.
template <>
struct Rounding<lane::F32> {
  bool stochastic;
  std::uint64_t key;

  HWY_INLINE float operator()(float master, std::uint64_t /*index*/) const { return master; }
};

/// The thread's part of one update. @return finite masters that overflowed as weights.
template <class Rule, class Grad, class Weight>
HWY_INLINE std::uint64_t update_thread(const UpdateArguments<typename Rule::Scalars>& work,
                                       const Place& place) {
  const lane::Step<Rule, lane::RoundNearest<Weight>> step = {
      work.scalars, {}, work.ema_one_minus_decay, false};
  const Rounding<Weight> rounding = {work.stochastic, work.rounding_key};
  const auto* const grad_at = static_cast<const typename Grad::Bits*>(work.grad);
  auto* const weight_at = static_cast<typename Weight::Bits*>(work.weight);
  float* const ema_at = work.ema_one_minus_decay == 0.0F ? nullptr : work.ema;
  const bool aligned = is_aligned(work.grad) && is_aligned(work.weight) && is_aligned(work.param) &&
                       is_aligned(work.state0) && is_aligned(work.state1) && is_aligned(ema_at);
  std::uint64_t overflowed = 0;
  for_each_chunk(work.elems, place, [&](std::uint64_t first, unsigned count) {
    Chunk<typename Grad::Bits> grad;
    Chunk<typename Weight::Bits> weight;
    Chunk<float> param;
    Chunk<float> state0;
    Chunk<float> state1;
    Chunk<float> ema;
    if constexpr (Rule::kReadsGradient) grad.load(grad_at, first, count, aligned);
    param.load(work.param, first, count, aligned);
    if constexpr (Rule::kStates > 0) state0.load(work.state0, first, count, aligned);
    if constexpr (Rule::kStates > 1) state1.load(work.state1, first, count, aligned);
    if (ema_at != nullptr) ema.load(ema_at, first, count, aligned);
    const lane::Streams<Grad, Weight> inside = {
        grad.at, weight.at, param.at, state0.at, state1.at, ema_at == nullptr ? nullptr : ema.at};
    OUTBOARD_UNROLL
    for (unsigned i = 0; i < kChunk; ++i) {
      const float master = lane::StepMaster(FloatTag(), step, inside, i, lane::AllLanes());
      weight.at[i] = rounding(master, work.first_element + first + i);
      if (i < count) overflowed += lane::CountOverflow(FloatTag(), Weight(), master);
    }
    param.store(work.param, first, count, aligned);
    if constexpr (Rule::kWritesState && Rule::kStates > 0) {
      state0.store(work.state0, first, count, aligned);
    }
    if constexpr (Rule::kWritesState && Rule::kStates > 1) {
      state1.store(work.state1, first, count, aligned);
    }
    if (ema_at != nullptr) ema.store(ema_at, first, count, aligned);
    weight.store(weight_at, first, count, aligned);
  });
  return overflowed;
}

template <class Rule>
HWY_INLINE std::uint64_t update_formats(const UpdateArguments<typename Rule::Scalars>& work,
                                        const Place& place) {
  std::uint64_t overflowed = 0;
  with_format(work.weight_format, [&](auto weight) {
    if constexpr (!Rule::kReadsGradient) {
      overflowed = update_thread<Rule, lane::F16, decltype(weight)>(work, place);
    } else {
      with_format(work.grad_format, [&](auto grad) {
        overflowed = update_thread<Rule, decltype(grad), decltype(weight)>(work, place);
      });
    }
  });
  return overflowed;
}

HWY_INLINE std::uint64_t update_part(const UpdateArguments<simd::AdamWScalars>& work, Place place) {
  return update_formats<lane::AdamWRule>(work, place);
}
HWY_INLINE std::uint64_t update_part(const UpdateArguments<simd::AdamScalars>& work, Place place) {
  return update_formats<lane::AdamRule>(work, place);
}
HWY_INLINE std::uint64_t update_part(const UpdateArguments<simd::SgdScalars>& work, Place place) {
  return work.scalars.momentum == 0.0F ? update_formats<lane::SgdRule>(work, place)
                                       : update_formats<lane::SgdMomentumRule>(work, place);
}
HWY_INLINE std::uint64_t update_part(const UpdateArguments<simd::LionScalars>& work, Place place) {
  return update_formats<lane::LionRule>(work, place);
}
HWY_INLINE std::uint64_t update_part(const UpdateArguments<simd::AdagradScalars>& work,
                                     Place place) {
  return update_formats<lane::AdagradRule>(work, place);
}
HWY_INLINE std::uint64_t update_part(UpdateArguments<simd::LambScalars> work, Place place) {
  if (work.lr_trust != nullptr) work.scalars.lr_trust = *work.lr_trust;
  return update_formats<lane::LambRule>(work, place);
}

// --- trees: a lane of a block of 4,096 elements ---

struct LaneScalars {
  double sum;
  std::uint64_t non_finite;
  std::uint64_t first_non_finite;  ///< as BlockScalars'
};

/// Lane `l` of tree block `block`: its elements are 64 apart.
template <class Format>
HWY_INLINE LaneScalars reduce_lane(const ReduceArguments& work, std::uint64_t block,
                                   std::uint32_t l) {
  using Bits = typename Format::Bits;
  const hwy::HWY_NAMESPACE::ScalableTag<double> dd;
  const auto* const grad = static_cast<const Bits*>(work.grad);
  auto* const packed = static_cast<Bits*>(work.packed);
  LaneScalars found = {0.0, 0, ~0ULL};
  const std::uint64_t begin = block * kTreeBlockElems;
  const std::uint64_t end =
      work.elems - begin < kTreeBlockElems ? work.elems : begin + kTreeBlockElems;
  for (std::uint64_t i = begin + l; i < end; i += kTreeLanes) {
    Bits element = grad[i];
    if (packed != nullptr) packed[i] = element;
    if (lane::IsNonFinite<Format>(element)) {
      const std::uint64_t at =
          ((work.first_element + i) << 1) | (lane::IsNaN<Format>(element) ? 1U : 0U);
      if (at < found.first_non_finite) found.first_non_finite = at;
      ++found.non_finite;
      element = Bits(0);
    }
    found.sum = hwy::HWY_NAMESPACE::Add(found.sum, lane::SquareRow(dd, Format(), &element));
  }
  return found;
}

HWY_INLINE LaneScalars reduce_lane(const ReduceArguments& work, std::uint64_t block,
                                   std::uint32_t l) {
  LaneScalars found = {};
  with_format(work.format,
              [&](auto format) { found = reduce_lane<decltype(format)>(work, block, l); });
  return found;
}

/// Lane `l` of LAMB's first phase on tree block `block`.
template <class Grad>
HWY_INLINE simd::BlockNorms lamb_lane(const LambMomentsArguments& work, std::uint64_t block,
                                      std::uint32_t l) {
  const hwy::HWY_NAMESPACE::ScalableTag<double> dd;
  const lane::Streams<Grad, lane::F32> at = {static_cast<const typename Grad::Bits*>(work.grad),
                                             nullptr,
                                             const_cast<float*>(work.param),
                                             work.exp_avg,
                                             work.exp_avg_sq,
                                             nullptr};
  simd::BlockNorms sum;
  const std::uint64_t begin = block * kTreeBlockElems;
  const std::uint64_t end =
      work.elems - begin < kTreeBlockElems ? work.elems : begin + kTreeBlockElems;
  for (std::uint64_t i = begin + l; i < end; i += kTreeLanes) {
    float update = 0.0F;
    lane::LambMomentsVector(FloatTag(), work.scalars, at, i, &update);
    sum.param =
        hwy::HWY_NAMESPACE::Add(sum.param, lane::SquareRow(dd, lane::F32(), work.param + i));
    sum.update = hwy::HWY_NAMESPACE::Add(sum.update, lane::SquareRow(dd, lane::F32(), &update));
  }
  return sum;
}

HWY_INLINE simd::BlockNorms lamb_lane(const LambMomentsArguments& work, std::uint64_t block,
                                      std::uint32_t l) {
  simd::BlockNorms sum;
  with_format(work.grad_format,
              [&](auto grad) { sum = lamb_lane<decltype(grad)>(work, block, l); });
  return sum;
}

// --- the rest ---

HWY_INLINE void accumulate_part(const AccumulateArguments& work, const Place& place) {
  with_format(work.format, [&](auto format) {
    using Format = decltype(format);
    const auto* const grad = static_cast<const typename Format::Bits*>(work.grad);
    for (std::uint64_t i = place.thread; i < work.elems; i += place.threads) {
      const float value = lane::LoadElements(FloatTag(), format, grad + i);
      work.sum[i] = work.first ? value : hwy::HWY_NAMESPACE::Add(work.sum[i], value);
    }
  });
}

HWY_INLINE void to_float_part(const ToFloatArguments& work, const Place& place) {
  with_format(work.format, [&](auto format) {
    using Format = decltype(format);
    const auto* const from = static_cast<const typename Format::Bits*>(work.src);
    for (std::uint64_t i = place.thread; i < work.elems; i += place.threads) {
      work.dst[i] = lane::LoadElements(FloatTag(), format, from + i);
    }
  });
}

/// The thread's part of the digest's sum.
HWY_INLINE std::uint64_t digest_part(const DigestArguments& work, const Place& place) {
  const hwy::HWY_NAMESPACE::ScalableTag<std::uint64_t> du;
  const lane::DigestStreams at = {work.param, work.state0, work.state1, work.ema};
  const std::uint64_t seed = lane::DigestSeed(work.parameter);
  std::uint64_t sum = 0;
  for (std::uint64_t i = place.thread; i < work.elems; i += place.threads) {
    const std::uint64_t key = seed + (work.first_element + i) * simd::kScrambleStride;
    sum += lane::MixElements(du, key, at, i);
  }
  return sum;
}

}  // namespace outboard::device::cuda::kernels
