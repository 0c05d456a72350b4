// SPDX-License-Identifier: Apache-2.0
#include "memory/page_places.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace outboard::memory {
namespace {

constexpr std::size_t kMostPages = 256;
constexpr double kLeastShare = 0.01;

}  // namespace

PageSample sample_pages(std::span<const std::byte> memory, std::uint32_t os_node) noexcept {
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t pages = memory.size() / page_bytes;
  const std::size_t count = std::min(pages, kMostPages);
  std::array<const void*, kMostPages> addresses{};
  std::array<int, kMostPages> nodes{};
  for (std::size_t i = 0; i < count; ++i) {
    addresses[i] = memory.data() + i * pages / count * page_bytes;
  }
  PageSample sample;
  // Without nodes to move them to the call only tells where pages are: a node, or an error below 0.
  if (count == 0 ||
      syscall(SYS_move_pages, 0, count, addresses.data(), nullptr, nodes.data(), 0) != 0) {
    return sample;
  }
  for (const int node : std::span(nodes).first(count)) {
    if (node < 0) continue;
    sample.known += 1;
    if (static_cast<std::uint32_t>(node) != os_node) sample.elsewhere += 1;
  }
  return sample;
}

void NodePlaces::add(std::span<const std::byte> memory) {
  const PageSample sample = sample_pages(memory, os_node);
  if (sample.known == 0) return;
  bytes += memory.size();
  elsewhere_bytes += static_cast<double>(memory.size()) * static_cast<double>(sample.elsewhere) /
                     static_cast<double>(sample.known);
}

std::string describe_strays(std::span<const NodePlaces> nodes) {
  std::string found;
  for (const NodePlaces& node : nodes) {
    if (node.bytes == 0) continue;
    const double share = node.elsewhere_bytes / static_cast<double>(node.bytes);
    if (share < kLeastShare) continue;
    found += (found.empty() ? "" : ", ") + std::to_string(std::lround(100.0 * share)) + " % of " +
             std::to_string(node.bytes) + " bytes for node " + std::to_string(node.os_node);
  }
  if (found.empty()) return "";
  return "host memory: about " + found +
         " lie on other nodes, where its threads reach them more slowly: the kernel takes free "
         "pages of a neighbour before it gives up those that files fill on the node; drop them "
         "first (echo 1 > /proc/sys/vm/drop_caches), or have it give them up (sysctl "
         "vm.zone_reclaim_mode=1)";
}

}  // namespace outboard::memory
