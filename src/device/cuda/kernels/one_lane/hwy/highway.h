// SPDX-License-Identifier: Apache-2.0
/// What the project's kernels use of Highway, on vectors of one lane, for a thread of a GPU: the
/// rules' own sources compile against it, so that host and device have one definition of every
/// formula. Each float operation is rounded to nearest by itself; nothing is contracted.
/// Stands in for Highway's header of this name by its place in the include path.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__CUDACC__)
#define HWY_INLINE __host__ __device__ __forceinline__
#else
#define HWY_INLINE inline
#endif
#define HWY_NOINLINE HWY_INLINE
#define HWY_ALIGN
#define HWY_BEFORE_NAMESPACE() static_assert(true)
#define HWY_AFTER_NAMESPACE() static_assert(true)
#define HWY_NAMESPACE N_ONE_LANE
#define HWY_LIKELY(condition) (condition)
#define HWY_UNLIKELY(condition) (condition)
#define HWY_SCALAR 1
#define HWY_AVX2 2
#define HWY_AVX3 3
#define HWY_TARGET HWY_SCALAR

namespace hwy {

struct float16_t {};

template <class T>
HWY_INLINE constexpr T HighestValue() {
  return std::numeric_limits<T>::max();
}
HWY_INLINE void FlushStream() {}

namespace N_ONE_LANE {

template <class T>
struct Tag {
  using Lane = T;
};
template <class T>
using ScalableTag = Tag<T>;
template <class T, std::size_t kMost>
using CappedTag = Tag<T>;
template <class D>
using TFromD = typename D::Lane;
template <class D>
using Vec = typename D::Lane;
template <class T, class D>
using Rebind = Tag<T>;
template <class D>
using Twice = D;

template <std::size_t kBytes>
struct Integers;
template <>
struct Integers<2> {
  using Unsigned = std::uint16_t;
  using Signed = std::int16_t;
};
template <>
struct Integers<4> {
  using Unsigned = std::uint32_t;
  using Signed = std::int32_t;
};
template <>
struct Integers<8> {
  using Unsigned = std::uint64_t;
  using Signed = std::int64_t;
};
template <class D>
using RebindToUnsigned = Tag<typename Integers<sizeof(TFromD<D>)>::Unsigned>;
template <class D>
using RebindToSigned = Tag<typename Integers<sizeof(TFromD<D>)>::Signed>;

template <class D>
HWY_INLINE constexpr std::size_t Lanes(D /*d*/) {
  return 1;
}
template <class D>
HWY_INLINE constexpr std::size_t MaxLanes(D /*d*/) {
  return 1;
}

// --- memory ---
template <class D>
HWY_INLINE Vec<D> LoadU(D /*d*/, const TFromD<D>* from) {
  return *from;
}
template <class D>
HWY_INLINE Vec<D> Load(D /*d*/, const TFromD<D>* from) {
  return *from;
}
template <class D>
HWY_INLINE void StoreU(Vec<D> value, D /*d*/, TFromD<D>* to) {
  *to = value;
}
template <class D>
HWY_INLINE void Store(Vec<D> value, D /*d*/, TFromD<D>* to) {
  *to = value;
}
template <class D>
HWY_INLINE void Stream(Vec<D> value, D /*d*/, TFromD<D>* to) {
  *to = value;
}

// --- values ---
template <class D>
HWY_INLINE Vec<D> Zero(D /*d*/) {
  return Vec<D>(0);
}
template <class D, class T>
HWY_INLINE Vec<D> Set(D /*d*/, T value) {
  return static_cast<Vec<D>>(value);
}
template <class D, class T>
HWY_INLINE Vec<D> Iota(D /*d*/, T first) {
  return static_cast<Vec<D>>(first);
}
template <class D>
HWY_INLINE Vec<D> Inf(D /*d*/) {
  return std::numeric_limits<Vec<D>>::infinity();
}

template <class D, class From>
HWY_INLINE Vec<D> BitCast(D /*d*/, From from) {
  static_assert(sizeof(Vec<D>) == sizeof(From));
  Vec<D> to;
  memcpy(&to, &from, sizeof to);
  return to;
}
template <class D, class From>
HWY_INLINE Vec<D> PromoteTo(D /*d*/, From from) {
  return static_cast<Vec<D>>(from);
}
template <class D, class From>
HWY_INLINE Vec<D> TruncateTo(D /*d*/, From from) {
  return static_cast<Vec<D>>(from);
}
/// From 32 bits with a sign to 16 without, saturated.
template <class D>
HWY_INLINE Vec<D> DemoteTo(D /*d*/, std::int32_t from) {
  return static_cast<Vec<D>>(from < 0 ? 0 : from > 0xFFFF ? 0xFFFF : from);
}
/// Toward zero.
HWY_INLINE std::int32_t ConvertTo(Tag<std::int32_t> /*d*/, float from) {
  return static_cast<std::int32_t>(from);
}
HWY_INLINE float ConvertTo(Tag<float> /*d*/, std::int32_t from) {
  return static_cast<float>(from);
}

// --- arithmetic ---
#if defined(__CUDA_ARCH__)
HWY_INLINE float Add(float a, float b) {
  return __fadd_rn(a, b);
}
HWY_INLINE float Sub(float a, float b) {
  return __fsub_rn(a, b);
}
HWY_INLINE float Mul(float a, float b) {
  return __fmul_rn(a, b);
}
HWY_INLINE float Div(float a, float b) {
  return __fdiv_rn(a, b);
}
HWY_INLINE float Sqrt(float a) {
  return __fsqrt_rn(a);
}
HWY_INLINE double Add(double a, double b) {
  return __dadd_rn(a, b);
}
HWY_INLINE double Mul(double a, double b) {
  return __dmul_rn(a, b);
}
#else
HWY_INLINE float Add(float a, float b) {
  return a + b;
}
HWY_INLINE float Sub(float a, float b) {
  return a - b;
}
HWY_INLINE float Mul(float a, float b) {
  return a * b;
}
HWY_INLINE float Div(float a, float b) {
  return a / b;
}
HWY_INLINE float Sqrt(float a) {
  return std::sqrt(a);
}
HWY_INLINE double Add(double a, double b) {
  return a + b;
}
HWY_INLINE double Mul(double a, double b) {
  return a * b;
}
#endif
HWY_INLINE std::uint32_t Add(std::uint32_t a, std::uint32_t b) {
  return a + b;
}
HWY_INLINE std::uint32_t Sub(std::uint32_t a, std::uint32_t b) {
  return a - b;
}
HWY_INLINE std::uint32_t Mul(std::uint32_t a, std::uint32_t b) {
  return a * b;
}
HWY_INLINE std::int32_t Sub(std::int32_t a, std::int32_t b) {
  return a - b;
}
HWY_INLINE std::uint64_t Add(std::uint64_t a, std::uint64_t b) {
  return a + b;
}
HWY_INLINE std::uint64_t Mul(std::uint64_t a, std::uint64_t b) {
  return a * b;
}

HWY_INLINE float Abs(float a) {
  return BitCast(Tag<float>(), BitCast(Tag<std::uint32_t>(), a) & 0x7FFFFFFFU);
}
HWY_INLINE float CopySign(float magnitude, float sign) {
  const std::uint32_t bits = BitCast(Tag<std::uint32_t>(), magnitude) & 0x7FFFFFFFU;
  return BitCast(Tag<float>(), bits | (BitCast(Tag<std::uint32_t>(), sign) & 0x80000000U));
}
template <class T>
HWY_INLINE T Max(T a, T b) {
  return a < b ? b : a;
}

// --- bits; of a mask too ---
template <class T>
HWY_INLINE T And(T a, T b) {
  return static_cast<T>(a & b);
}
template <class T>
HWY_INLINE T Or(T a, T b) {
  return static_cast<T>(a | b);
}
template <class T>
HWY_INLINE T Xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
/// ~a & b.
template <class T>
HWY_INLINE T AndNot(T a, T b) {
  return static_cast<T>(~a & b);
}
template <int kBits, class T>
HWY_INLINE T ShiftLeft(T a) {
  return static_cast<T>(a << kBits);
}
template <int kBits, class T>
HWY_INLINE T ShiftRight(T a) {
  return static_cast<T>(a >> kBits);
}

// --- masks: bool ---
template <class T>
HWY_INLINE bool Lt(T a, T b) {
  return a < b;
}
template <class T>
HWY_INLINE bool Gt(T a, T b) {
  return a > b;
}
template <class T>
HWY_INLINE bool Ge(T a, T b) {
  return a >= b;
}
template <class T>
HWY_INLINE bool Eq(T a, T b) {
  return a == b;
}
template <class T>
HWY_INLINE bool TestBit(T a, T bit) {
  return (a & bit) != 0;
}
HWY_INLINE bool IsNaN(float a) {
  return a != a;
}
template <class D>
HWY_INLINE bool RebindMask(D /*d*/, bool mask) {
  return mask;
}
template <class T>
HWY_INLINE bool MaskFromVec(T value) {
  return value != 0;
}
/// All bits set where the mask is.
template <class D>
HWY_INLINE Vec<D> VecFromMask(D /*d*/, bool mask) {
  return mask ? static_cast<Vec<D>>(-1) : Vec<D>(0);
}
template <class D>
HWY_INLINE bool AllTrue(D /*d*/, bool mask) {
  return mask;
}
template <class D>
HWY_INLINE bool AllFalse(D /*d*/, bool mask) {
  return !mask;
}
template <class D>
HWY_INLINE std::size_t CountTrue(D /*d*/, bool mask) {
  return mask ? 1 : 0;
}
template <class D>
HWY_INLINE bool FirstN(D /*d*/, std::size_t count) {
  return count > 0;
}
template <class T>
HWY_INLINE T IfThenElse(bool mask, T yes, T no) {
  return mask ? yes : no;
}
template <class T>
HWY_INLINE T IfThenZeroElse(bool mask, T no) {
  return mask ? T(0) : no;
}
template <class T>
HWY_INLINE T IfThenElseZero(bool mask, T yes) {
  return mask ? yes : T(0);
}

}  // namespace N_ONE_LANE
}  // namespace hwy
