// SPDX-License-Identifier: Apache-2.0
#include "update_bench/data.hpp"

#include <bit>

#include "core/host_layout.hpp"

namespace outboard::update_bench {
namespace {

std::uint32_t scramble(std::uint64_t index) {
  std::uint64_t z = index * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 29U)) * 0xBF58476D1CE4E5B9U;
  return static_cast<std::uint32_t>(z >> 32U);
}

constexpr std::size_t kStateStreams = 3;

/// How far into its arena a stream starts: the state as in the engine, the others at once.
std::size_t lead_bytes(std::size_t stream) {
  return stream < kStateStreams ? stream * core::kStreamStagger : 0;
}

/// +-2^-10 to +-2^-2, ten bits of mantissa: ordinary in every format.
float ordinary(std::uint32_t random) {
  const std::uint32_t sign = random & 0x80000000U;
  const std::uint32_t exponent = 117U + (random >> 10U) % 8U;
  return std::bit_cast<float>(sign | (exponent << 23U) | ((random & 0x3FFU) << 13U));
}

/// The bits of `ordinary(random)`, or of a subnormal value, in a gradient's format.
std::uint32_t gradient_bits(simd::Format format, std::uint32_t random, Values values) {
  const bool tiny = values == Values::subnormal;
  const std::uint32_t single = std::bit_cast<std::uint32_t>(ordinary(random));
  switch (format) {
    case simd::Format::f32:
      return tiny ? 1U + random % 0x7FFFFFU : single;
    case simd::Format::bf16:
      return tiny ? 1U + random % 0x7FU : single >> 16U;
    case simd::Format::f16:
      break;
  }
  const std::uint32_t rebiased = ((single & 0x7FFFFFFFU) >> 13U) - ((127U - 15U) << 10U);
  return tiny ? 1U + random % 0x3FFU : ((single >> 16U) & 0x8000U) | rebiased;
}

void put(simd::Elements elements, std::size_t index, std::uint32_t bits) {
  if (elements.format == simd::Format::f32) {
    static_cast<std::uint32_t*>(elements.data)[index] = bits;
  } else {
    static_cast<std::uint16_t*>(elements.data)[index] = static_cast<std::uint16_t>(bits);
  }
}

simd::Elements advance(simd::Elements elements, std::uint64_t count) {
  auto* first = static_cast<std::byte*>(elements.data);
  return {first + count * simd::format_bytes(elements.format), elements.format};
}

}  // namespace

View View::part(std::uint64_t begin, std::uint64_t end) const {
  const auto cut = [&](std::span<float> stream) { return stream.subspan(begin, end - begin); };
  return {cut(param), {cut(state[0]), cut(state[1])}, advance(grad, begin), advance(weight, begin)};
}

simd::UpdateShard View::shard(const Piece& piece, Rule rule) const {
  const View own = part(piece.offset, piece.offset + piece.elems);
  simd::UpdateShard shard{.grad = {own.grad.data, own.grad.format},
                          .weight = own.weight,
                          .param = own.param,
                          .state = own.state};
  if (state_streams(rule) < 2) shard.state[1] = {};
  shard.first_element = piece.first_element;
  return shard;
}

void fill(const View& view, std::uint64_t first, Values values) {
  for (std::size_t i = 0; i < view.param.size(); ++i) {
    const std::uint32_t random = scramble(first + i);
    const std::uint32_t other = random * 2654435761U;
    put(view.grad, i, gradient_bits(view.grad.format, random, values));
    if (values == Values::subnormal) {
      view.param[i] = std::bit_cast<float>(1U + other % 0x7FFFFFU);
      view.state[0][i] = -view.param[i];
      view.state[1][i] = view.param[i];
    } else {
      const float value = ordinary(other);
      view.param[i] = value;
      // Adagrad's only state is a sum of squares: nothing here is negative.
      view.state[0][i] = value * value * 0.01F;
      view.state[1][i] = value * value * 0.01F;
    }
  }
}

Data::Data(const topology::Machine& machine, std::span<const std::uint64_t> node_elems,
           const Workload& workload)
    : grad_(workload.grad),
      weight_(workload.weight),
      alias_(workload.alias),
      node_elems_(node_elems.begin(), node_elems.end()) {
  constexpr std::array<const char*, kStreams> kPurposes = {
      "master weight", "first state stream", "second state stream", "gradient", "weight"};
  const std::array<std::size_t, kStreams> bytes = {4, 4, 4, simd::format_bytes(grad_),
                                                   alias_ ? 0 : simd::format_bytes(weight_)};
  for (std::uint32_t node = 0; node < node_elems.size(); ++node) {
    auto& arenas = nodes_.emplace_back();
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      arenas[stream] = memory::NumaArena(
          machine, node, node_elems[node] * bytes[stream] + lead_bytes(stream), kPurposes[stream]);
    }
  }
}

View Data::node(std::uint32_t index) const {
  const auto& arenas = nodes_[index];
  const auto floats = [&](Stream stream) {
    return std::span<float>(
        reinterpret_cast<float*>(arenas[stream].bytes().data() + lead_bytes(stream)),
        node_elems_[index]);
  };
  const simd::Elements grad{arenas[kGrad].bytes().data(), grad_};
  const simd::Elements weight{alias_ ? grad.data : arenas[kWeight].bytes().data(), weight_};
  return {floats(kParam), {floats(kState0), floats(kState1)}, grad, weight};
}

std::vector<std::span<const std::byte>> Data::memory() const {
  std::vector<std::span<const std::byte>> all;
  for (const auto& arenas : nodes_) {
    for (const memory::NumaArena& arena : arenas) {
      if (!arena.bytes().empty()) all.emplace_back(arena.bytes());
    }
  }
  return all;
}

std::string Data::notes() const {
  std::string text;
  for (const auto& arenas : nodes_) {
    // One refusal is like another: the first stream of a node speaks for all.
    const std::string& note = arenas[kParam].binding_note();
    if (!note.empty()) text += note + "\n";
  }
  return text;
}

std::uint64_t Data::bytes_for(std::uint64_t elems, const Workload& workload) noexcept {
  const std::size_t weight = workload.alias ? 0 : simd::format_bytes(workload.weight);
  return elems * (12 + simd::format_bytes(workload.grad) + weight);
}

}  // namespace outboard::update_bench
