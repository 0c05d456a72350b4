// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "outboard/error.hpp"
#include "topology/machine.hpp"

namespace outboard::topology {
namespace {

std::uint32_t sum(const std::vector<std::uint32_t>& threads) {
  return std::accumulate(threads.begin(), threads.end(), 0u);
}

std::string spell(const std::vector<std::uint32_t>& threads) {
  std::string text;
  for (const std::uint32_t count : threads) {
    text += (text.empty() ? "" : "+") + std::to_string(count);
  }
  return text + (sum(threads) == 1 ? " thread: " : " threads: ");
}

void check_configured(std::size_t nodes, std::uint32_t threads_per_node) {
  const std::uint64_t all = std::uint64_t{nodes} * threads_per_node;
  if (all <= kMostThreads) return;
  throw Error(ErrorCode::invalid_config,
              "Config::host.threads_per_node is " + std::to_string(threads_per_node) + ", on " +
                  std::to_string(nodes) + (nodes == 1 ? " node " : " nodes ") +
                  std::to_string(all) + " threads; allowed: at most " +
                  std::to_string(kMostThreads) + " in all (0: the engine chooses)");
}

/// Takes from the largest node, the last among equals, so that nodes stay even.
void shrink_to(std::vector<std::uint32_t>& threads, std::uint32_t limit) {
  while (sum(threads) > limit) {
    const auto most = std::max_element(threads.rbegin(), threads.rend());
    if (*most <= 1) return;
    --*most;
  }
}

/// From the last nodes, down to one thread each. @return how many.
std::uint32_t reserve(std::vector<std::uint32_t>& threads, std::uint32_t cores) {
  std::uint32_t left = cores;
  for (auto node = threads.rbegin(); node != threads.rend(); ++node) {
    const std::uint32_t taken = std::min(left, *node - 1);
    *node -= taken;
    left -= taken;
  }
  return cores - left;
}

}  // namespace

std::uint32_t default_reserve(const Machine& machine) noexcept {
  std::size_t cores = 0;
  for (const Node& node : machine.nodes) cores += node.cores.size();
  return cores > 2 ? 1 : 0;
}

Machine within_quota(Machine machine) {
  const std::size_t nodes = machine.nodes.size();
  if (machine.quota_cores == 0 || machine.quota_cores >= nodes) return machine;
  Node all = machine.nodes.front();
  for (std::size_t i = 1; i < nodes; ++i) {
    const Node& node = machine.nodes[i];
    all.cores.insert(all.cores.end(), node.cores.begin(), node.cores.end());
    all.cpus.insert(all.cpus.end(), node.cpus.begin(), node.cpus.end());
    all.memory_bytes += node.memory_bytes;
  }
  std::ranges::sort(all.cores);
  std::ranges::sort(all.cpus);
  for (const MemoryNode& memory : machine.memory_nodes) all.memory_bytes += memory.memory_bytes;
  machine.memory_nodes.clear();  // no arena can be bound to them
  machine.nodes = {std::move(all)};
  machine.distances.clear();
  machine.numa_known = false;
  machine.nodes_beyond_quota = true;
  machine.notes += "NUMA: not used (a CPU quota of " + std::to_string(machine.quota_cores) +
                   " for " + std::to_string(nodes) + " nodes); one node, no memory is bound\n";
  return machine;
}

ThreadChoice choose_threads(const Machine& machine, std::uint32_t threads_per_node,
                            std::uint32_t reserve_cores) {
  ThreadChoice choice;
  if (threads_per_node != 0) {
    check_configured(machine.nodes.size(), threads_per_node);
    choice.threads_per_node.assign(machine.nodes.size(), threads_per_node);
    choice.why = spell(choice.threads_per_node) + "as configured";
    return choice;
  }
  for (const Node& node : machine.nodes) {
    choice.threads_per_node.push_back(
        std::max<std::uint32_t>(1, static_cast<std::uint32_t>(node.cores.size())));
  }
  std::string why = std::to_string(sum(choice.threads_per_node)) + " allowed physical cores";
  const std::uint32_t reserved = reserve(choice.threads_per_node, reserve_cores);
  if (reserved > 0) why += ", " + std::to_string(reserved) + " left to the trainer";
  if (machine.quota_cores > 0 && sum(choice.threads_per_node) > machine.quota_cores) {
    shrink_to(choice.threads_per_node, machine.quota_cores);
    why += ", CPU quota " + std::to_string(machine.quota_cores);
    if (!machine.quota_source.empty()) why += " (" + machine.quota_source + ")";
  }
  if (sum(choice.threads_per_node) > kMostThreads) {
    shrink_to(choice.threads_per_node, kMostThreads);
    why += ", at most " + std::to_string(kMostThreads);
  }
  choice.why = spell(choice.threads_per_node) + why;
  return choice;
}

}  // namespace outboard::topology
