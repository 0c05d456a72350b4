// SPDX-License-Identifier: Apache-2.0
// Whether host memory lies on the nodes that it was bound to, once all of it has been touched.
#include <map>
#include <vector>

#include "memory/page_places.hpp"
#include "pipeline/step.hpp"

namespace outboard::pipeline {

/// Of the last generation; once. Where binding is refused that has been said.
void Pipeline::report_strays(const topology::Machine& machine) {
  const bool one_node = machine.nodes.size() + machine.memory_nodes.size() < 2;
  if (!strays_.empty() || !machine.real || !machine.numa_known || one_node) return;
  std::map<std::uint32_t, memory::NodePlaces> places;
  const auto add = [&](std::uint32_t os_node, std::span<const std::byte> memory) {
    places.try_emplace(os_node, memory::NodePlaces{.os_node = os_node}).first->second.add(memory);
  };
  const Generation& generation = flow_.generations.back();
  for (const memory::StateStore* store : {&generation.state, &generation.sums}) {
    for (const auto& info : store->arenas()) {
      if (!info.arena.binding_note().empty()) return;
      add(info.memory_node.value_or(machine.nodes[info.arena.node()].os_index), info.arena.bytes());
    }
  }
  for (const auto& region : generation.staging.regions()) {
    add(machine.nodes[region.node].os_index, region.bytes);
  }
  std::vector<memory::NodePlaces> nodes;
  nodes.reserve(places.size());
  for (const auto& [os_node, found] : places) nodes.push_back(found);
  strays_ = memory::describe_strays(nodes);
  warn(strays_);
}

}  // namespace outboard::pipeline
