// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cli/report.hpp"
#include "cli/topo.hpp"
#include "inspect/checks.hpp"

namespace outboard::cli {
namespace {

using inspect::HostReport;

constexpr std::size_t kInside = 22;  // columns of a box without its sides

using Box = std::vector<std::string>;

std::string fitted(std::string text) {
  text.resize(kInside, ' ');
  return "|" + text + "|";
}

std::string edge(std::string title) {
  title.resize(kInside, '-');
  return "+" + title + "+";
}

/// '#' for each core with a thread, '.' for one without.
void add_cores(Box& box, std::size_t cores, std::size_t threads) {
  constexpr std::size_t kInLine = kInside - 2;
  constexpr std::size_t kMostLines = 3;
  const std::size_t shown = std::min(cores, kInLine * kMostLines);
  for (std::size_t first = 0; first < shown; first += kInLine) {
    std::string text = " ";
    for (std::size_t core = first; core < std::min(shown, first + kInLine); ++core) {
      text += core < threads ? '#' : '.';
    }
    box.push_back(fitted(text));
  }
  if (shown < cores) box.push_back(fitted(print(" and %zu more", cores - shown)));
}

Box box_of(const HostReport& report, std::size_t index) {
  const topology::Node& node = report.machine.nodes[index];
  const std::uint32_t threads = report.threads.threads_per_node[index];
  Box box = {edge(print("- node %zu ", index))};
  box.push_back(fitted(node.memory_bytes == 0 ? " memory unknown"
                                              : " " + inspect::show_bytes(node.memory_bytes)));
  for (const topology::MemoryNode& memory : report.machine.memory_nodes) {
    if (memory.nearest != index) continue;
    box.push_back(fitted(" + " + inspect::show_bytes(memory.memory_bytes) +
                         print(", NUMA %u", memory.os_index)));
  }
  add_cores(box, node.cores.size(), threads);
  box.push_back(fitted(print(" %u thread%s, %.1f %%", threads, threads == 1 ? "" : "s",
                             100.0 * report.shares[index])));
  for (const topology::Gpu& gpu : report.gpus) {
    if (gpu.node != index) continue;
    box.push_back(fitted(" GPU " + gpu.pci_address));
  }
  return box;
}

std::string row_of(std::vector<Box> boxes) {
  std::size_t height = 0;
  for (const Box& box : boxes) height = std::max(height, box.size());
  std::string text;
  for (Box& box : boxes) {
    box.resize(height, fitted(""));
    box.push_back(edge(""));
  }
  for (std::size_t row = 0; row <= height; ++row) {
    std::string line;
    for (const Box& box : boxes) line += (line.empty() ? "" : "  ") + box[row];
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string topo_picture(const HostReport& report) {
  std::string text;
  const std::size_t nodes = report.machine.nodes.size();
  // 26 columns each with the gap: three fit. Four look better in two rows.
  const std::size_t in_row = nodes == 4 ? 2 : 3;
  for (std::size_t first = 0; first < nodes; first += in_row) {
    std::vector<Box> boxes;
    for (std::size_t i = first; i < std::min(nodes, first + in_row); ++i) {
      boxes.push_back(box_of(report, i));
    }
    text += row_of(std::move(boxes));
  }
  text += "# a core that updates, . one that is left alone\n";
  if (nodes == 1) return text + "every bucket is updated on node 0\n";
  std::string order = "shared out by threads, equal buckets in forward order go to nodes";
  for (const std::uint32_t node : report.bucket_nodes) order += " " + std::to_string(node);
  return text + wrapped(order + " ...", 0);
}

}  // namespace outboard::cli
