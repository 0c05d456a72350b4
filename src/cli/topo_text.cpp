// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <sstream>

#include "cli/report.hpp"
#include "cli/topo.hpp"
#include "inspect/checks.hpp"
#include "outboard/version.hpp"

namespace outboard::cli {
namespace {

using inspect::HostReport;
using inspect::show_bytes;
using topology::Gpu;
using topology::Machine;
using topology::Node;

constexpr std::size_t kWidth = 80;
constexpr std::size_t kNameWidth = 16;  // the colon and a blank too

std::string line(const char* name, const std::string& text) {
  return print("%14s: ", name) + wrapped(text, kNameWidth);
}

std::string machine_name(const HostReport& report) {
  const topology::HostLimits& limits = report.limits;
  std::string text = limits.processor.empty() ? "processor unknown" : limits.processor;
  if (!limits.kernel.empty()) text += ", Linux " + limits.kernel;
  if (!limits.container.empty()) text += ", in a container (" + limits.container + ")";
  return text;
}

/// The first line of notes that starts with `word`, without it.
std::string noted(const Machine& machine, const std::string& word) {
  std::istringstream lines(machine.notes);
  for (std::string text; std::getline(lines, text);) {
    if (text.starts_with(word)) return text.substr(word.size());
  }
  return "";
}

std::string numa_line(const Machine& machine) {
  if (!machine.numa_known) return noted(machine, "NUMA: ");
  std::string text =
      print("%zu node%s", machine.nodes.size(), machine.nodes.size() == 1 ? "" : "s");
  if (!machine.memory_nodes.empty()) {
    text += print(" with cpus, %zu of memory only", machine.memory_nodes.size());
  }
  return text;
}

std::string quota_line(const Machine& machine) {
  if (machine.quota_cores == 0) return "none";
  return print("%u core%s (", machine.quota_cores, machine.quota_cores == 1 ? "" : "s") +
         machine.quota_source + ")";
}

std::string memory_line(const topology::MemoryLimit& memory) {
  if (!memory.known()) return "unknown";
  return show_bytes(memory.left_bytes()) + " left of " + show_bytes(memory.limit_bytes) + " (" +
         memory.source + ")";
}

std::string lock_line(const topology::HostLimits& limits) {
  if (!limits.lock_bytes) return "unknown";
  if (*limits.lock_bytes == std::numeric_limits<std::uint64_t>::max()) return "unlimited";
  return show_bytes(*limits.lock_bytes) +
         (limits.may_lock_more ? ", does not hold for this user (CAP_IPC_LOCK)" : " (ulimit -l)");
}

std::string pages_line(const topology::HostLimits& limits) {
  std::string text =
      "transparent: " + (limits.transparent_huge_pages.empty() ? std::string("unknown")
                                                               : limits.transparent_huge_pages);
  if (limits.reserved_pages.empty()) return text + "; none reserved";
  for (const topology::ReservedPages& pages : limits.reserved_pages) {
    text += print("; NUMA node %u: %llu of %llu reserved of ", pages.os_index,
                  static_cast<unsigned long long>(pages.free),
                  static_cast<unsigned long long>(pages.total)) +
            show_bytes(pages.page_kib << 10) + " free";
  }
  return text;
}

std::string permission(const std::optional<topology::BindingRefusal>& refusal) {
  return refusal ? "not permitted: " + refusal->text() + "; " + refusal->remedy() : "permitted";
}

std::string head(const HostReport& report) {
  const Machine& machine = report.machine;
  std::string text = print("outboard %s  topo\n", kVersion);
  if (!report.question.described()) text += line("machine", machine_name(report));
  text += line("source", noted(machine, "source: "));
  text += line("NUMA", numa_line(machine));
  if (!report.question.described()) {
    text += line("memory", memory_line(report.memory));
    text += line("CPU quota", quota_line(machine));
  }
  text += line("threads", report.threads.why);
  if (report.kernels) {
    std::string targets;
    for (const std::string& target : report.kernels->supported) targets += " " + target;
    text += line("kernels", report.kernels->target + ", of" + targets);
  }
  if (!report.question.described()) {
    text += line("memory lock", lock_line(report.limits));
    text += line("huge pages", pages_line(report.limits));
  }
  if (report.binding) {
    text += line("memory binding", permission(report.binding->memory));
    text += line("thread binding", permission(report.binding->threads));
  }
  if (report.driver) text += line("GPU driver", report.driver->report.found);
  return text;
}

std::string distances_of(const Machine& machine, std::size_t node) {
  const std::size_t nodes = machine.nodes.size();
  if (machine.distances.size() != nodes * nodes || nodes > 8) return "";
  std::string text;
  for (std::size_t to = 0; to < nodes; ++to) {
    text += print("%s%u", to == 0 ? "" : " ", machine.distances[node * nodes + to]);
  }
  return text;
}

/// Without the blanks that an empty last column leaves.
std::string row(std::string text) {
  text.resize(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

std::string node_rows(const HostReport& report) {
  const Machine& machine = report.machine;
  std::string text = print("\n%4s %5s %6s %5s %11s %8s %8s  %s\n", "node", "NUMA", "cores", "cpus",
                           "memory", "threads", "share", "distances");
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    const Node& node = machine.nodes[i];
    text += row(print("%4zu %5u %6zu %5zu %11s %8u %6.1f %%  %s", i, node.os_index,
                      node.cores.size(), node.cpus.size(),
                      node.memory_bytes == 0 ? "unknown" : show_bytes(node.memory_bytes).c_str(),
                      report.threads.threads_per_node[i], 100.0 * report.shares[i],
                      distances_of(machine, i).c_str()));
  }
  for (const topology::MemoryNode& memory : machine.memory_nodes) {
    text += print("%4s %5u %6s %5s %11s %8s %8s  memory only, nearest to node %u\n", "-",
                  memory.os_index, "-", "-", show_bytes(memory.memory_bytes).c_str(), "-", "-",
                  memory.nearest);
  }
  if (machine.nodes.size() > 1) {
    text += "share: by threads; an engine whose nodes update at other rates goes by those\n";
  }
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    text += print("node %zu's cpus: ", i);
    text += wrapped(cpu_list(machine.nodes[i].cpus), print("node %zu's cpus: ", i).size());
  }
  return text;
}

std::string gpu_rows(const HostReport& report) {
  const bool file = !report.question.xml.empty();
  if (report.gpus.empty()) {
    return file ? "\nno NVIDIA GPU in the file\n" : "\nno NVIDIA GPU on the PCI bus\n";
  }
  std::string text =
      print("\n%3s  %-16s %-7s %-24s %s\n", "GPU", "PCI address", "node", "link", "model");
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    const Gpu& gpu = report.gpus[i];
    const std::string node = gpu.node ? std::to_string(*gpu.node) : "unknown";
    text += row(print("%3zu  %-16s %-7s %-24s %s", i, gpu.pci_address.c_str(), node.c_str(),
                      inspect::show_link(gpu.link).c_str(), gpu.model.c_str()));
    text += "     " + wrapped("node: " + gpu.node_note, 5);
  }
  return text;
}

std::string visible_rows(const HostReport& report) {
  if (!report.visible_devices && report.gpus.empty()) return "";
  std::string text = report.visible_devices
                         ? "visible, CUDA_VISIBLE_DEVICES=" + *report.visible_devices
                         : "visible";
  const bool assumed = report.visible_devices && report.driver && report.driver->devices.empty();
  if (assumed) text += " (numbers by PCI address: no driver tells its own order)";
  text += ":";
  for (std::size_t i = 0; i < report.visible.gpus.size(); ++i) {
    const topology::VisibleGpu& gpu = report.visible.gpus[i];
    text += print(" %zu is %s, node %s;", i, gpu.pci_address.c_str(),
                  gpu.node ? std::to_string(*gpu.node).c_str() : "unknown");
  }
  if (text.back() == ';') text.pop_back();
  if (report.visible.gpus.empty()) text += " none";
  text = wrapped(text, 0);
  return report.visible.note.empty() ? text : text + wrapped(report.visible.note, 0);
}

/// What the notes say beside what the lines above do.
std::string other_notes(const Machine& machine) {
  std::istringstream lines(machine.notes);
  std::string text;
  for (std::string note; std::getline(lines, note);) {
    const bool shown = note.starts_with("source: ") || note.starts_with("NUMA: ") ||
                       note.starts_with("CPU quota: ") || note.starts_with("node ") ||
                       note.find(": memory only, ") != std::string::npos;
    if (!shown) text += wrapped("note: " + note, 0);
  }
  return text;
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t indent) {
  std::istringstream words(text);
  std::string out;
  std::size_t column = indent;
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    }
    if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

std::string cpu_list(const std::vector<std::uint32_t>& cpus) {
  std::string text;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    // A list of many singles has to be breakable.
    if (!text.empty()) text += ", ";
    text += std::to_string(cpus[first]);
    if (last > first) text += "-" + std::to_string(cpus[last]);
    first = last + 1;
  }
  return text;
}

std::string topo_text(const HostReport& report) {
  std::string text = head(report) + node_rows(report);
  if (report.question.synthetic.empty()) text += gpu_rows(report);
  if (!report.question.described()) text += visible_rows(report);
  return text + other_notes(report.machine);
}

}  // namespace outboard::cli
