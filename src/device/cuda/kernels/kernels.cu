// SPDX-License-Identifier: Apache-2.0
// The device's kernels: each thread's part is in bodies.hpp; here is how threads share the work and
// add up what they found.
#include "device/cuda/kernels/bodies.hpp"

#include "device/backend.hpp"
#include "simd/rules/lamb_trust.hpp"

namespace {

using namespace outboard::device::cuda;
namespace simd = outboard::simd;
using outboard::device::GradientScalars;
using outboard::device::PackedWeight;

constexpr unsigned kEveryLane = 0xFFFFFFFFU;
constexpr unsigned kWarp = 32;

__device__ kernels::Place place() {
  return {static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
          static_cast<std::uint64_t>(gridDim.x) * blockDim.x};
}

/// Integers of all threads of the grid, in any order.
__device__ void add_up(std::uint64_t value, std::uint64_t* total) {
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_down_sync(kEveryLane, static_cast<unsigned long long>(value), distance);
  }
  if (threadIdx.x % kWarp == 0 && value != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(total), static_cast<unsigned long long>(value));
  }
}

/// 64 lanes to one, by halves: lane l += lane l + 32, then + 16, and so on. Right in thread 0.
__device__ double fold_lanes(double sum, double* upper_half) {
  __syncthreads();
  if (threadIdx.x >= kWarp) upper_half[threadIdx.x - kWarp] = sum;
  __syncthreads();
  if (threadIdx.x < kWarp) {
    sum = __dadd_rn(sum, upper_half[threadIdx.x]);
    for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
      sum = __dadd_rn(sum, __shfl_down_sync(kEveryLane, sum, distance));
    }
  }
  return sum;
}

template <class RuleScalars>
__device__ void update(const UpdateArguments<RuleScalars>& work) {
  const std::uint64_t overflowed = kernels::update_part(work, place());
  if (work.overflow_count != nullptr) add_up(overflowed, work.overflow_count);
}

}  // namespace

extern "C" {

__global__ void outboard_reduce(const __grid_constant__ ReduceArguments work) {
  __shared__ double upper_half[kWarp];
  __shared__ unsigned long long first_non_finite;
  __shared__ unsigned non_finite;
  if (threadIdx.x == 0) {
    first_non_finite = ~0ULL;
    non_finite = 0;
  }
  __syncthreads();
  const kernels::LaneScalars lane = kernels::reduce_lane(work, blockIdx.x, threadIdx.x);
  if (lane.non_finite != 0) {
    atomicMin(&first_non_finite, static_cast<unsigned long long>(lane.first_non_finite));
    atomicAdd(&non_finite, static_cast<unsigned>(lane.non_finite));
  }
  const double sum = fold_lanes(lane.sum, upper_half);
  if (threadIdx.x == 0) work.blocks[blockIdx.x] = {sum, non_finite, first_non_finite};
}

/// The order of the block sums is part of the contract, so one thread adds them; the others bring
/// them in.
__global__ void outboard_reduce_blocks(const __grid_constant__ ReduceBlocksArguments work) {
  __shared__ BlockScalars near[kTreeLanes];
  auto& scalars = *static_cast<GradientScalars*>(work.scalars);
  GradientScalars all = {};
  if (threadIdx.x == 0 && !work.first) all = scalars;
  for (std::uint64_t begin = 0; begin < work.count; begin += kTreeLanes) {
    const std::uint64_t left = work.count - begin;
    const auto count = static_cast<unsigned>(left < kTreeLanes ? left : kTreeLanes);
    __syncthreads();
    if (threadIdx.x < count) near[threadIdx.x] = work.blocks[begin + threadIdx.x];
    __syncthreads();
    if (threadIdx.x != 0) continue;
    for (unsigned i = 0; i < count; ++i) {
      all.sum_of_squares = __dadd_rn(all.sum_of_squares, near[i].sum_of_squares);
      if (all.non_finite == 0 && near[i].non_finite > 0) {
        all.first_non_finite = near[i].first_non_finite;
      }
      all.non_finite += near[i].non_finite;
    }
  }
  if (threadIdx.x == 0) scalars = all;
}

__global__ void outboard_unpack(const __grid_constant__ UnpackArguments work) {
  const PackedWeight entry = static_cast<const PackedWeight*>(work.weights)[blockIdx.x];
  // Elements of 2 or 4 bytes: halves are what both are made of.
  const std::uint64_t halves = work.element_bytes / 2;
  const auto* const from = static_cast<const std::uint16_t*>(work.packed) + entry.offset * halves;
  auto* const to = static_cast<std::uint16_t*>(entry.weight);
  for (std::uint64_t i = threadIdx.x; i < entry.elems * halves; i += blockDim.x) to[i] = from[i];
}

__global__ void outboard_accumulate(const __grid_constant__ AccumulateArguments work) {
  kernels::accumulate_part(work, place());
}

__global__ void outboard_update_adamw(
    const __grid_constant__ UpdateArguments<simd::AdamWScalars> work) {
  update(work);
}
__global__ void outboard_update_adam(
    const __grid_constant__ UpdateArguments<simd::AdamScalars> work) {
  update(work);
}
__global__ void outboard_update_sgd(
    const __grid_constant__ UpdateArguments<simd::SgdScalars> work) {
  update(work);
}
__global__ void outboard_update_lion(
    const __grid_constant__ UpdateArguments<simd::LionScalars> work) {
  update(work);
}
__global__ void outboard_update_adagrad(
    const __grid_constant__ UpdateArguments<simd::AdagradScalars> work) {
  update(work);
}
__global__ void outboard_update_lamb(
    const __grid_constant__ UpdateArguments<simd::LambScalars> work) {
  update(work);
}

__global__ void outboard_lamb_moments(const __grid_constant__ LambMomentsArguments work) {
  __shared__ double upper_half[kWarp];
  const simd::BlockNorms lane = kernels::lamb_lane(work, blockIdx.x, threadIdx.x);
  const double param = fold_lanes(lane.param, upper_half);
  const double updated = fold_lanes(lane.update, upper_half);
  if (threadIdx.x == 0) {
    work.norms[blockIdx.x].param = param;
    work.norms[blockIdx.x].update = updated;
  }
}

__global__ void outboard_lamb_trust(const __grid_constant__ LambTrustArguments work) {
  *work.lr_trust = simd::lamb_lr_trust(work.lr, {work.norms, work.blocks});
}

__global__ void outboard_digest(const __grid_constant__ DigestArguments work) {
  add_up(kernels::digest_part(work, place()), work.sum);
}

__global__ void outboard_to_float(const __grid_constant__ ToFloatArguments work) {
  kernels::to_float_part(work, place());
}

}  // extern "C"
