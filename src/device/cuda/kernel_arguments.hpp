// SPDX-License-Identifier: Apache-2.0
/// What the device's kernels take, for the host that launches them and for the kernels themselves.
/// Each kernel has one struct by value as its only argument. Addresses are the device's.
#pragma once

#include <cstdint>

#include "simd/rules/adagrad.hpp"
#include "simd/rules/adam.hpp"
#include "simd/rules/adamw.hpp"
#include "simd/rules/lamb.hpp"
#include "simd/rules/lion.hpp"
#include "simd/rules/sgd.hpp"

namespace outboard::device::cuda {

/// Elements whose squares one block of threads adds up; of docs/numerics.md.
inline constexpr std::uint32_t kTreeBlockElems = 4096;
inline constexpr std::uint32_t kTreeLanes = 64;
/// Threads of a block in the kernels that fold such a tree, and in outboard_unpack.
inline constexpr std::uint32_t kReduceThreads = 64;
inline constexpr std::uint32_t kUnpackThreads = 128;

/// As simd::Format numbers them.
enum class ElementFormat : std::uint32_t { f16, bf16, f32 };

/// One tree block's part of a gradient's scalars. 24 bytes.
struct BlockScalars {
  double sum_of_squares;
  std::uint64_t non_finite;
  std::uint64_t first_non_finite;  ///< (element << 1) | is_nan; all ones: none
};

/// outboard_reduce: a tree block for each block of threads. `packed`: null, or where the gradient
/// is copied to.
struct ReduceArguments {
  const void* grad;
  void* packed;
  BlockScalars* blocks;
  std::uint64_t elems;
  std::uint64_t first_element;  ///< of the whole gradient: of this launch's first
  ElementFormat format;
};

/// outboard_reduce_blocks: one thread adds block sums in order.
struct ReduceBlocksArguments {
  const BlockScalars* blocks;
  std::uint64_t count;
  void* scalars;  ///< GradientScalars
  bool first;     ///< what `scalars` holds is nothing yet
};

/// outboard_unpack.
struct UnpackArguments {
  const void* packed;
  const void* weights;  ///< `count` entries of device::PackedWeight
  std::uint64_t count;
  std::uint32_t element_bytes;
};

/// outboard_accumulate.
struct AccumulateArguments {
  const void* grad;
  float* sum;
  std::uint64_t elems;
  ElementFormat format;
  bool first;  ///< the sum becomes the gradient
};

/// outboard_update_<rule>: a kernel for each kind of scalars. As device::DeviceUpdate.
template <class RuleScalars>
struct UpdateArguments {
  const void* grad;
  void* weight;
  float* param;
  float* state0;
  float* state1;
  float* ema;
  std::uint64_t elems;
  std::uint64_t first_element;
  RuleScalars scalars;
  ElementFormat grad_format;
  ElementFormat weight_format;
  float ema_one_minus_decay;
  bool stochastic;
  std::uint64_t rounding_key;
  std::uint64_t* overflow_count;
  const float* lr_trust;
};

/// outboard_lamb_moments: a tree block for each block of threads.
struct LambMomentsArguments {
  const void* grad;
  const float* param;
  float* exp_avg;
  float* exp_avg_sq;
  std::uint64_t elems;
  simd::LambScalars scalars;
  ElementFormat grad_format;
  simd::BlockNorms* norms;
};

/// outboard_lamb_trust: one thread.
struct LambTrustArguments {
  const simd::BlockNorms* norms;
  std::uint64_t blocks;
  double lr;
  float* lr_trust;
};

/// outboard_digest.
struct DigestArguments {
  const float* param;
  const float* state0;
  const float* state1;
  const float* ema;
  std::uint64_t elems;
  std::uint64_t parameter;
  std::uint64_t first_element;
  std::uint64_t* sum;
};

/// outboard_to_float.
struct ToFloatArguments {
  const void* src;
  float* dst;
  std::uint64_t elems;
  ElementFormat format;
};

}  // namespace outboard::device::cuda
