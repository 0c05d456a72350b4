// SPDX-License-Identifier: Apache-2.0
#include "pipeline/host_sums.hpp"

#include <algorithm>
#include <array>

#include "core/host_layout.hpp"
#include "simd/accumulate.hpp"

namespace outboard::pipeline {
namespace {

constexpr std::uint64_t kBlock = simd::kReduceBlockElems;

std::array<memory::StreamSpec, 1> sum_stream() {
  return {{{"gradient accumulator", sizeof(float)}}};
}

struct Range {
  std::uint64_t from = 0, to = 0;
};
/// Part `part` of `elems`, in whole blocks of the norm's tree.
Range cut(std::uint64_t elems, std::uint32_t part, std::uint32_t parts) {
  const std::uint64_t blocks = simd::reduce_block_count(elems);
  const std::uint64_t each = (blocks + parts - 1) / parts * kBlock;
  return {std::min(elems, each * part), std::min(elems, each * (part + 1))};
}

}  // namespace

std::uint64_t HostSums::reserved_bytes(memory::StateHomes& homes, memory::ReservedCredit& credit,
                                       std::span<const std::uint64_t> node_elems) {
  return memory::StateStore::reserved_bytes(homes, credit, sum_stream(), node_elems,
                                            core::kMaxStateStreams);
}

memory::StateStore HostSums::make_store(memory::StateHomes& homes,
                                        std::span<const std::uint64_t> node_elems,
                                        memory::FirstTouch touch) {
  return {homes, sum_stream(), node_elems, core::kMaxStateStreams, touch};
}

void HostSums::fit() {
  std::uint64_t blocks = 0;
  first_block_.clear();
  for (const Parameter& parameter : flow_.parameters) {
    first_block_.push_back(blocks);
    blocks += simd::reduce_block_count(parameter.elems);
  }
  blocks_.resize(blocks);
}

std::span<const float> HostSums::bucket(std::uint32_t index) const {
  const plan::Bucket& shape = flow_.layout.buckets[index];
  return flow_.generation(index)
      .sums.lease({shape.node, shape.node_offset, shape.padded_elems})
      .stream<float>(0);
}

std::span<float> HostSums::segment(std::uint32_t index) const {
  const plan::Segment& segment = flow_.layout.segments[index];
  const plan::Bucket& shape = flow_.layout.buckets[segment.bucket];
  return flow_.generation(segment.bucket)
      .sums.lease({shape.node, shape.node_offset + segment.offset, segment.elems})
      .stream<float>(0);
}

void HostSums::add(const Addition& addition, std::uint32_t part, std::uint32_t parts) noexcept {
  const std::span<float> sums = segment(addition.segment);
  const Range range = cut(sums.size(), part, parts);
  const plan::Segment& shape = flow_.layout.segments[addition.segment];
  const std::size_t size = flow_.elem_bytes(shape);
  const simd::Format format = optim::format_of(flow_.parameters[shape.parameter].dtype);
  // Block by block, so that the norm reads what the addition has just left in the cache.
  for (std::uint64_t from = range.from; from < range.to; from += kBlock) {
    const std::uint64_t to = std::min(range.to, from + kBlock);
    simd::accumulate({.grad = {addition.gradient + from * size, format},
                      .sum = sums.subspan(from, to - from),
                      .first = addition.first});
    if (addition.last) reduce_blocks(addition.segment, from, to);
  }
}

void HostSums::reduce(std::uint32_t index, std::uint32_t part, std::uint32_t parts) noexcept {
  const Range range = cut(flow_.layout.segments[index].elems, part, parts);
  reduce_blocks(index, range.from, range.to);
}

void HostSums::reduce_blocks(std::uint32_t index, std::uint64_t from, std::uint64_t to) noexcept {
  const plan::Segment& shape = flow_.layout.segments[index];
  const std::span<const float> sums = segment(index);
  const std::uint64_t base = first_block_[shape.parameter] + shape.first_element / kBlock;
  for (std::uint64_t at = from; at < to; at += kBlock) {
    const std::uint64_t size = std::min(kBlock, to - at);
    blocks_[base + at / kBlock] =
        simd::reduce_gradient({sums.data() + at, simd::Format::f32}, size);
  }
}

device::GradientScalars HostSums::scalars(std::uint32_t parameter) const {
  device::GradientScalars scalars;
  const std::uint64_t blocks = simd::reduce_block_count(flow_.parameters[parameter].elems);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const simd::GradientReduction& block = blocks_[first_block_[parameter] + i];
    scalars.sum_of_squares += block.sum_of_squares;
    if (block.non_finite > 0 && scalars.non_finite == 0) {
      const std::uint64_t element = i * kBlock + block.first_non_finite;
      scalars.first_non_finite = (element << 1) | (block.first_is_nan ? 1U : 0U);
    }
    scalars.non_finite += block.non_finite;
  }
  return scalars;
}

void HostSums::touch(std::uint32_t index, std::uint32_t part, std::uint32_t parts) noexcept {
  const plan::Bucket& shape = flow_.layout.buckets[index];
  const auto sums = flow_.generation(index)
                        .sums.lease({shape.node, shape.node_offset, shape.padded_elems})
                        .stream<float>(0);
  const Range range = cut(sums.size(), part, parts);
  std::ranges::fill(sums.subspan(range.from, range.to - range.from), 0.0F);
}

}  // namespace outboard::pipeline
