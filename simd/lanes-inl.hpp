// SPDX-License-Identifier: Apache-2.0
/// How a vector comes from memory and goes back: all of it, or only its first lanes.
#include "simd/highway_targets.hpp"

#include <cstddef>

#include "hwy/highway.h"

#if defined(OUTBOARD_SIMD_LANES_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OUTBOARD_SIMD_LANES_INL_HPP_
#undef OUTBOARD_SIMD_LANES_INL_HPP_
#else
#define OUTBOARD_SIMD_LANES_INL_HPP_
#endif

HWY_BEFORE_NAMESPACE();
namespace outboard::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct AllLanes {
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, const hn::TFromD<D>* from) const {
    return hn::LoadU(d, from);
  }
  template <class D>
  HWY_INLINE void Store(hn::Vec<D> value, D d, hn::TFromD<D>* to) const {
    hn::StoreU(value, d, to);
  }
};

#undef OUTBOARD_SIMD_HAS_FIRST_LANES
// Elsewhere Highway may touch the memory of other lanes too, or of 16-bit lanes always does.
#if HWY_TARGET == HWY_AVX3
#define OUTBOARD_SIMD_HAS_FIRST_LANES 1
/// The first `count` lanes. The others read as zero; their memory is not touched.
struct FirstLanes {
  std::size_t count;
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, const hn::TFromD<D>* from) const {
    return hn::MaskedLoad(hn::FirstN(d, count), d, from);
  }
  template <class D>
  HWY_INLINE void Store(hn::Vec<D> value, D d, hn::TFromD<D>* to) const {
    hn::BlendedStore(value, hn::FirstN(d, count), d, to);
  }
};
#else
#define OUTBOARD_SIMD_HAS_FIRST_LANES 0
#endif

}  // namespace outboard::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OUTBOARD_SIMD_LANES_INL_HPP_
