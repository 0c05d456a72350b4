// SPDX-License-Identifier: Apache-2.0
// What a pipeline holds, and how that is told.
#include <algorithm>
#include <array>
#include <iomanip>
#include <sstream>
#include <string>
#include <utility>

#include "core/show_number.hpp"
#include "memory/huge_pages.hpp"
#include "memory/lock_limit.hpp"
#include "pipeline/step.hpp"

namespace outboard::pipeline {

/// Once for all arenas: what refuses one binding refuses the others.
void Pipeline::report_bindings() {
  std::string memory;
  for (const auto& info : flow_.generations.front().state.arenas()) {
    if (memory.empty()) memory = info.arena.binding_note();
  }
  const std::string workers = flow_.executor.binding_note();
  if (memory.empty() && workers.empty()) return;
  std::string text = "binding refused: ";
  if (!memory.empty()) text += "memory: " + memory + "; ";
  if (!workers.empty()) text += "workers of " + workers + "; ";
  if (workers.empty()) {
    text += "pages lie where they are first touched, on their node since its workers are bound";
  } else {
    text += "workers run on any allowed cpu";
    if (!memory.empty()) text += " and pages lie where they are first touched";
  }
  warn(text);
}

/// Of the last generation. One line for all that is not pinned, with what helps.
void Pipeline::report_staging() {
  const memory::StagingPool& staging = flow_.generations.back().staging;
  const bool refused = staging.refused() || !scalars_.region().pinned();
  std::string text = unpinned_staging(staging);
  if (text.empty() && refused) {
    text =
        "the device refuses to pin the gate's scalars; each step() waits for a slower copy, of " +
        std::to_string(scalars_.bytes()) + " bytes";
  }
  if (text.empty()) return;
  if (refused) {
    const std::uint64_t unpinned = staging.wanted_bytes() - staging.pinned_bytes() +
                                   (scalars_.region().pinned() ? 0 : scalars_.bytes());
    text += "; " + memory::why_refused(memory::read_lock_use(), unpinned);
  } else {
    text += "; raise Config::pinned_slots";
  }
  if (refused && config_.strict_pinning) {
    throw Error(ErrorCode::out_of_memory,
                "pinned host memory: " + text + "; or do without Config::strict_pinning");
  }
  warn("pinned host memory: " + text);
}

/// One warning for all commits: what refuses one of them refuses the next.
void Pipeline::pin_streamed_state() {
  const std::string text = streamed_->pin();
  if (text.empty()) return;
  if (config_.strict_pinning) {
    throw Error(ErrorCode::out_of_memory, text + ", or do without Config::strict_pinning");
  }
  if (!std::exchange(told_unpinned_state_, true)) warn(text);
}

bool Pipeline::all_slots_direct() const {
  return std::ranges::all_of(flow_.generations, [](const Generation& generation) {
    return generation.staging.direct_slots() == generation.staging.slots();
  });
}

std::string Pipeline::unpinned_staging(const memory::StagingPool& staging) const {
  const std::size_t through_ring = staging.slots() - staging.direct_slots();
  if (through_ring == 0) return "";
  const char* why = "";
  if (!staging.ring_pinned()) {
    why = unpinned_slots() == std::size_t{0}
              ? " (Config::pinned_slots leaves nothing, not even a bounce buffer)"
              : " (the device refuses to pin even a bounce buffer)";
  }
  return "staging wants " + std::to_string(staging.wanted_bytes()) + " bytes, " +
         std::to_string(staging.pinned_bytes()) + " are pinned" + why + "; " +
         std::to_string(through_ring) + " of " + std::to_string(staging.slots()) +
         " buckets go through a bounce ring, at 4 more bytes of host traffic per parameter";
}

StepStats Pipeline::stats() {
  const std::lock_guard lock(flow_.mutex);
  StepStats stats = flow_.stats;
  stats.update_busy_us = static_cast<double>(busy_ns() - busy_before_ns_) * 1e-3;
  stats.device_fraction = flow_.share().fraction();
  if (auto_) stats.predicted_step_us = auto_->predicted_us();
  if (auto_) stats.measured_step_us = auto_->measured_us();
  return stats;
}

std::int64_t Pipeline::busy_ns() const {
  std::int64_t sum = 0;
  for (std::uint32_t node = 0; node < flow_.executor.nodes(); ++node) {
    sum += flow_.executor.busy_ns(node);
  }
  return sum;
}

MemoryLedger Pipeline::ledger() {
  MemoryLedger ledger;
  for (const Parameter& parameter : flow_.parameters) ledger.trainable_elems += parameter.elems;
  add_host_memory(ledger);
  const auto scalars = scalars_.region().bytes();
  ledger.entries.push_back(
      {"gate scalars",
       scalars_.region().pinned() ? MemoryPlace::host_pinned : MemoryPlace::host_pageable,
       scalars_.region().node(), scalars.size(), scalars.data()});
  ledger.entries.push_back(
      {"gate scalars", MemoryPlace::device, 0, scalars_.bytes(), scalars_.device()});
  const auto add_device = [&](const std::string& purpose, std::span<const std::byte> range) {
    if (range.empty()) return;
    ledger.entries.push_back({purpose, MemoryPlace::device, 0, range.size(), range.data()});
  };
  if (const auto held = snapshot_->held(); !held.empty()) {
    ledger.entries.push_back(
        {"snapshot for saves", MemoryPlace::host_pageable, 0, held.size(), held.data()});
  }
  for (std::size_t i = 0; i < flow_.generations.size(); ++i) {
    const Resident::Held held = resident_->held(i);
    const optim::StateLayout& streams = flow_.generations[i].streams;
    for (std::size_t k = 0; k < streams.streams(); ++k) {
      add_device(streams.purposes[k], held.streams[k]);
    }
    add_device("block norms", held.norms);
    add_device("gradient accumulator", held.sums);
  }
  add_device("stream buffers", streamed_->held());
  for (const Packing* packing : flow_.packings) {
    for (const std::span<const std::byte> range : packing->held()) {
      add_device("packed small tensors", range);
    }
  }
  return ledger;
}

/// Purpose by purpose, generation after generation.
void Pipeline::add_host_memory(MemoryLedger& ledger) const {
  const auto add_arenas = [&](const memory::StateStore& store) {
    for (const auto& info : store.arenas()) {
      if (info.arena.bytes().empty()) continue;
      const auto place = streamed_->pinned(info.arena.bytes().data()) ? MemoryPlace::host_pinned
                                                                      : MemoryPlace::host_pageable;
      ledger.entries.push_back({info.purpose, place, info.arena.node(), info.arena.bytes().size(),
                                info.arena.bytes().data(), info.memory_node, info.arena.pages()});
    }
  };
  for (const Generation& generation : flow_.generations) add_arenas(generation.state);
  for (const Generation& generation : flow_.generations) add_arenas(generation.sums);
  for (const Generation& generation : flow_.generations) {
    for (const auto& region : generation.staging.regions()) {
      const auto place = region.pinned ? MemoryPlace::host_pinned : MemoryPlace::host_pageable;
      ledger.entries.push_back({region.purpose,
                                place,
                                region.node,
                                region.bytes.size(),
                                region.bytes.data(),
                                {},
                                region.pages});
    }
  }
}

std::string Pipeline::describe_placement() const {
  const std::size_t all = flow_.buckets.size();
  const std::string text = std::string("placement: ") + (auto_ ? "automatic, " : "") +
                           std::to_string(all) + " buckets, ";
  if (flow_.streamed_count == all && all > 0) {
    return text + "all streamed through the device, in " + std::to_string(plan::kStreamBuffers) +
           " buffers of " + std::to_string(streamed_->held().size() / plan::kStreamBuffers) +
           " bytes\n";
  }
  if (flow_.resident_count == 0) return text + "all on the host\n";
  if (flow_.resident_count == all) return text + "all device-resident\n";
  std::ostringstream share;
  share << std::fixed << std::setprecision(1) << 100.0 * flow_.share().fraction();
  return text + std::to_string(flow_.resident_count) + " device-resident (" + share.str() +
         " % of the state), " + std::to_string(all - flow_.resident_count) + " on the host\n";
}

/// Bytes of host memory by the pages that they lie in.
std::string Pipeline::describe_pages() const {
  MemoryLedger ledger;
  add_host_memory(ledger);
  std::array<std::uint64_t, 3> bytes{};
  for (const LedgerEntry& entry : ledger.entries) {
    const std::size_t huge =
        entry.pages == PageKind::small ? 0 : entry.bytes / memory::kHugePage * memory::kHugePage;
    bytes[static_cast<std::size_t>(entry.pages)] += huge;
    bytes[static_cast<std::size_t>(PageKind::small)] += entry.bytes - huge;
  }
  constexpr std::array<const char*, 3> names = {" bytes in small ones", " in transparent huge ones",
                                                " in reserved huge ones"};
  std::string text = "pages: " + std::to_string(bytes[0]) + names[0];
  for (std::size_t i = 1; i < bytes.size(); ++i) {
    if (bytes[i] > 0) text += ", " + std::to_string(bytes[i]) + names[i];
  }
  return text + "\n";
}

/// A call that finds a stream full would wait for updates that its own lock keeps from being
/// reported. For each bucket: the flag, the readers, copies, and an event.
bool Pipeline::uploads_fit_queue() const {
  std::size_t operations = 0;
  for (const plan::Bucket& bucket : flow_.layout.buckets) {
    operations += bucket.segments - bucket.packed_segments + 4;
  }
  return operations <= flow_.backend.queue_depth();
}

std::string Pipeline::describe() {
  std::string text = describe_placement();
  if (slots_ == 0) return text;
  if (config_.host.update_share < 1.0) {
    text += "pacing: nodes update for at most " + core::show_number(config_.host.update_share) +
            " of the time (Config::host.update_share)\n";
  }
  text += describe_pages();
  if (!strays_.empty()) text += strays_ + "\n";
  std::size_t direct = 0;
  std::size_t buffers = 0;
  for (const Generation& generation : flow_.generations) {
    direct += generation.staging.direct_slots();
    buffers += generation.staging.ring().size();
  }
  text += "staging: " + std::to_string(direct) + " of " + std::to_string(slots_) +
          " slots pinned, bounce ring of " + std::to_string(buffers) + "\n";
  text +=
      std::string("uploads: ") +
      (flow_.options.uploads_ahead ? "queued at the gate, behind flags" : "queued when updated") +
      "\n";
  return text + node_shares_.describe();
}

}  // namespace outboard::pipeline
