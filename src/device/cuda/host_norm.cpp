// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/host_norm.hpp"

#include <algorithm>
#include <cstddef>

#include "simd/reduce.hpp"

namespace outboard::device::cuda {
namespace {

// Whole blocks of the norm's tree, so that pieces may be added up in order.
constexpr std::uint64_t kPieceElems = 64 * simd::kReduceBlockElems;
constexpr std::size_t kElementBytes = sizeof(float);  // of the widest format
constexpr std::size_t kPieceBytes = kPieceElems * kElementBytes;

GradientScalars& scalars_in(const NormRoom& room) {
  return *reinterpret_cast<GradientScalars*>(static_cast<std::byte*>(room.memory) + kPieceBytes);
}

void add_block(GradientScalars& sum, const simd::GradientReduction& block, std::uint64_t first) {
  sum.sum_of_squares += block.sum_of_squares;
  if (sum.non_finite == 0 && block.non_finite > 0) {
    sum.first_non_finite = (first + block.first_non_finite) << 1 | (block.first_is_nan ? 1U : 0U);
  }
  sum.non_finite += block.non_finite;
}

}  // namespace

HostNorm::Piece* HostNorm::take() {
  const std::scoped_lock lock(mutex_);
  if (free_ == nullptr) free_ = &pieces_.emplace_back();
  Piece* const piece = free_;
  free_ = piece->next;
  return piece;
}

void HostNorm::recycle(Piece* piece) noexcept {
  const std::scoped_lock lock(mutex_);
  piece->next = free_;
  free_ = piece;
}

void HostNorm::queue(CUstream stream, NormRoom& room, simd::ConstElements grad, std::uint64_t elems,
                     void* scalars) {
  const DriverApi& api = context_.api();
  if (room.memory == nullptr) {
    require(api.host_allocate(&room.memory, kPieceBytes + sizeof(GradientScalars),
                              CU_MEMHOSTALLOC_PORTABLE),
            "cuMemHostAlloc", kPieceBytes);
  }
  const std::size_t size = simd::format_bytes(grad.format);
  const auto from = reinterpret_cast<CUdeviceptr>(grad.data);
  std::uint64_t first = 0;
  do {
    const std::uint64_t count = std::min(kPieceElems, elems - first);
    if (count > 0) {
      require(api.copy_to_host(room.memory, from + first * size, count * size, stream),
              "cuMemcpyDtoHAsync_v2", count * size);
    }
    Piece* const piece = take();
    *piece = {this, &room, grad.format, first, count, nullptr};
    const CUresult result = api.launch_host_function(stream, &HostNorm::reduce, piece);
    if (result != CUDA_SUCCESS) recycle(piece);
    require(result, "cuLaunchHostFunc", count * size);
    first += count;
  } while (first < elems);
  require(api.copy_to_device(reinterpret_cast<CUdeviceptr>(scalars), &scalars_in(room),
                             sizeof(GradientScalars), stream),
          "cuMemcpyHtoDAsync_v2", sizeof(GradientScalars));
}

/// On the driver's thread, in the order of the stream.
void HostNorm::reduce(void* pointer) noexcept {
  auto* const piece = static_cast<Piece*>(pointer);
  GradientScalars& sum = scalars_in(*piece->room);
  if (piece->first == 0) sum = {};
  const auto* const memory = static_cast<const std::byte*>(piece->room->memory);
  for (std::uint64_t at = 0; at < piece->count; at += simd::kReduceBlockElems) {
    const std::uint64_t count = std::min(simd::kReduceBlockElems, piece->count - at);
    const simd::ConstElements block{memory + at * simd::format_bytes(piece->format), piece->format};
    add_block(sum, simd::reduce_gradient(block, count), piece->first + at);
  }
  piece->owner->recycle(piece);
}

void HostNorm::give_back(NormRoom& room) noexcept {
  if (room.memory != nullptr) (void)context_.api().host_free(room.memory);
  room.memory = nullptr;
}

}  // namespace outboard::device::cuda
