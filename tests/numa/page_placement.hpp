// SPDX-License-Identifier: Apache-2.0
/// Where the kernel says that pages lie and that threads may run and have run. Linux only; nothing
/// here asks the engine.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace outboard::numa_test {

/// Pages of a range by the number of the NUMA node that holds them, as move_pages() tells;
/// kUntouched for those that nobody has touched. @throws std::runtime_error naming the call.
inline constexpr int kUntouched = -1;
[[nodiscard]] std::map<int, std::size_t> pages_by_node(const void* address, std::size_t bytes);

/// One mapping as /proc/self/numa_maps tells it: its memory policy, and its pages by node.
struct MappedRange {
  const std::byte* address = nullptr;
  std::size_t bytes = 0;
  std::string policy;                  ///< "default", "bind:1", "prefer (many):1"
  std::map<int, std::size_t> by_node;  ///< small pages; a huge one counts as those it takes up
};
/// The mappings that hold a range: neighbours that are bound alike are one. @throws
/// std::runtime_error if they do not hold all of it.
[[nodiscard]] std::vector<MappedRange> mapped_ranges(const void* address, std::size_t bytes);

struct ThreadPlace {
  int id = 0;
  std::set<int> allowed;  ///< cpus
  int cpu = -1;           ///< that it ran on last
};
/// Every thread of this process but the calling one.
[[nodiscard]] std::vector<ThreadPlace> other_threads();

/// "0-2,5" as numbers.
[[nodiscard]] std::set<int> parse_list(const std::string& text);
/// The first line of a file; "" if it cannot be read.
[[nodiscard]] std::string first_line(const std::string& path);
/// Cpus of each NUMA node of this machine, by the node's number; memory-only nodes have none.
[[nodiscard]] std::map<int, std::set<int>> cpus_by_node();

}  // namespace outboard::numa_test
