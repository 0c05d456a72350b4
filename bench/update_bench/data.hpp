// SPDX-License-Identifier: Apache-2.0
/// The memory of a measurement: arenas on the nodes, as the engine has them, and what is in them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/numa_arena.hpp"
#include "simd/update.hpp"
#include "topology/machine.hpp"
#include "update_bench/layout.hpp"
#include "update_bench/workload.hpp"

namespace outboard::update_bench {

enum class Values : std::uint8_t { normal, subnormal };

/// Borrowed elements of a node, or of a copy of them.
struct View {
  std::span<float> param;
  std::array<std::span<float>, 2> state;
  simd::Elements grad;
  simd::Elements weight;  ///< `grad` itself if they alias

  /// What of it an update of `piece` touches; `piece.offset` counts from the view's start.
  [[nodiscard]] simd::UpdateShard shard(const Piece& piece, Rule rule) const;
  [[nodiscard]] View part(std::uint64_t begin, std::uint64_t end) const;
};

/// Writes gradient and state. Element i depends on `first + i` and the formats only.
void fill(const View& view, std::uint64_t first, Values values);

class Data {
 public:
  /// Maps and binds; touches nothing. Always three FP32 streams, which the roof needs.
  /// @throws Error{out_of_memory} if the system refuses.
  Data(const topology::Machine& machine, std::span<const std::uint64_t> node_elems,
       const Workload& workload);

  [[nodiscard]] View node(std::uint32_t index) const;
  [[nodiscard]] std::vector<std::span<const std::byte>> memory() const;
  /// Bindings that were refused, one line each.
  [[nodiscard]] std::string notes() const;
  /// What the arenas take for so many elements.
  [[nodiscard]] static std::uint64_t bytes_for(std::uint64_t elems,
                                               const Workload& workload) noexcept;

 private:
  enum Stream : std::size_t { kParam, kState0, kState1, kGrad, kWeight, kStreams };
  simd::Format grad_;
  simd::Format weight_;
  bool alias_;
  std::vector<std::array<memory::NumaArena, kStreams>> nodes_;
  std::vector<std::uint64_t> node_elems_;
};

}  // namespace outboard::update_bench
