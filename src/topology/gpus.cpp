// SPDX-License-Identifier: Apache-2.0
#include "topology/gpus.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "topology/system_files.hpp"

namespace outboard::topology {
namespace {

constexpr std::string_view kNvidia = "0x10de";
constexpr std::string_view kDisplay = "0x03";  // 0x0300 VGA, 0x0302 compute

struct Placed {
  std::optional<std::uint32_t> node;
  std::string note;
};

std::optional<std::uint32_t> index_of(const Machine& machine, std::uint64_t os_index) {
  for (std::uint32_t i = 0; i < machine.nodes.size(); ++i) {
    if (machine.nodes[i].os_index == os_index) return i;
  }
  for (const MemoryNode& memory : machine.memory_nodes) {
    if (memory.os_index == os_index) return memory.nearest;
  }
  return std::nullopt;
}

/// The only node that has some of these cpus.
std::optional<std::uint32_t> node_of_cpus(const Machine& machine, const std::string& path) {
  const auto line = first_line(path);
  const auto cpus = line ? parse_cpu_list(*line) : std::nullopt;
  std::optional<std::uint32_t> only;
  if (!cpus) return only;
  for (std::uint32_t i = 0; i < machine.nodes.size(); ++i) {
    const bool some = std::ranges::any_of(machine.nodes[i].cpus, [&](std::uint32_t cpu) {
      return std::ranges::binary_search(*cpus, cpu);
    });
    if (!some) continue;
    if (only) return std::nullopt;
    only = i;
  }
  return only;
}

Placed place(const std::string& folder, const Machine& machine) {
  const auto line = first_line(folder + "/numa_node");
  const auto number = first_number(folder + "/numa_node");
  if (machine.numa_known && number) {
    if (const auto node = index_of(machine, *number)) return {node, "by numa_node"};
  }
  if (machine.nodes.size() == 1) return {0, "the only node"};
  const std::string why =
      line ? "numa_node says " + *line + ", which is no allowed node" : "no file numa_node";
  if (const auto node = node_of_cpus(machine, folder + "/local_cpulist")) {
    return {node, "by local_cpulist; " + why};
  }
  return {std::nullopt, "unknown: " + why};
}

/// "16.0 GT/s PCIe", "Unknown".
double speed_in(const std::string& path) {
  const auto line = first_line(path);
  double value = 0.0;
  if (!line) return 0.0;
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), value);
  return error == std::errc{} && value > 0.0 && value < 1e4 ? value : 0.0;
}

/// The kernel writes 0 or 255 for what it does not know; no link has more than 32 lanes.
std::uint32_t lanes_in(const std::string& path) {
  const std::uint64_t lanes = first_number(path).value_or(0);
  return lanes <= 32 ? static_cast<std::uint32_t>(lanes) : 0;
}

/// A link is as fast as the slower of its ends. The folder is a link to one below the port's.
double most_speed(const std::string& folder) {
  const double device = speed_in(folder + "/max_link_speed");
  const double port = speed_in(folder + "/../max_link_speed");
  return port > 0.0 && device > 0.0 ? std::min(port, device) : device;
}

PciLink read_link(const std::string& folder) {
  return {.gt_per_s = speed_in(folder + "/current_link_speed"),
          .lanes = lanes_in(folder + "/current_link_width"),
          .most_gt_per_s = most_speed(folder),
          .most_lanes = lanes_in(folder + "/max_link_width")};
}

/// "Model: \t\t NVIDIA A100" without the colon's blanks.
std::string told_by_driver(const std::string& root, const std::string& address, const char* key) {
  const std::string path = root + "/proc/driver/nvidia/gpus/" + address + "/information";
  return entry_text(path, key).value_or("");
}

const Gpu* find(std::span<const Gpu> gpus, const std::string& address) {
  const auto found = std::ranges::find(gpus, address, &Gpu::pci_address);
  return found == gpus.end() ? nullptr : &*found;
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

struct Choice {
  std::size_t device = 0;
  std::string problem;  ///< "" if there is such a device
};

Choice by_uuid(std::string_view word, std::span<const DriverDevice> devices) {
  Choice choice{devices.size(), ""};
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].uuid.starts_with(word)) continue;
    if (choice.device < devices.size()) return {devices.size(), "names several devices"};
    choice.device = i;
  }
  if (choice.device == devices.size()) choice.problem = "names no device";
  return choice;
}

Choice choose(std::string_view word, std::span<const DriverDevice> devices) {
  if (word.starts_with("MIG-")) return {devices.size(), "is a part of a device: not looked up"};
  if (word.starts_with("GPU-")) return by_uuid(word, devices);
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || end != word.data() + word.size()) {
    return {devices.size(), "is no number and no UUID"};
  }
  if (number >= devices.size()) {
    return {devices.size(), "is not below " + std::to_string(devices.size())};
  }
  return {number, ""};
}

}  // namespace

double PciLink::bytes_per_s() const noexcept {
  if (lanes == 0) return told_bytes_per_s;
  const double speed = most_gt_per_s > 0.0 ? most_gt_per_s : gt_per_s;
  // Two of ten bits are the line's own up to 5 GT/s, two of 130 beyond.
  return speed * 1e9 / 8.0 * (speed <= 5.0 ? 0.8 : 128.0 / 130.0) * lanes;
}

std::string pci_address_of(std::string_view text) {
  std::string address;
  for (const char c : text) {
    address += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (std::ranges::count(address, ':') == 1) address.insert(0, "0000:");
  while (address.find(':') != std::string::npos && address.find(':') > 4 && address[0] == '0') {
    address.erase(0, 1);
  }
  if (address.find('.') == std::string::npos && !address.empty()) address += ".0";
  return address;
}

std::vector<Gpu> read_gpus(const std::string& root, const Machine& machine) {
  const std::string devices = root + "/sys/bus/pci/devices";
  std::vector<Gpu> gpus;
  for (const std::string& name : names_in(devices, "")) {
    std::string folder = devices + "/";
    folder += name;
    if (first_line(folder + "/vendor") != kNvidia) continue;
    if (!first_line(folder + "/class").value_or("").starts_with(kDisplay)) continue;
    Placed placed = place(folder, machine);
    gpus.push_back({.pci_address = name,
                    .model = told_by_driver(root, name, "Model:"),
                    .uuid = told_by_driver(root, name, "GPU UUID:"),
                    .node = placed.node,
                    .node_note = std::move(placed.note),
                    .link = read_link(folder)});
  }
  return gpus;
}

VisibleGpus visible_gpus(std::optional<std::string_view> variable,
                         std::span<const DriverDevice> devices, std::span<const Gpu> gpus) {
  VisibleGpus visible;
  const auto add = [&](const DriverDevice& device) {
    const std::string address = pci_address_of(device.pci_address);
    const Gpu* gpu = find(gpus, address);
    visible.gpus.push_back({address, gpu == nullptr ? std::nullopt : gpu->node});
  };
  if (!variable) {
    for (const DriverDevice& device : devices) add(device);
    return visible;
  }
  std::vector<std::size_t> seen;
  std::string_view rest = *variable;
  while (!without_blanks(rest).empty()) {
    const auto comma = rest.find(',');
    const std::string_view word = without_blanks(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    Choice choice = choose(word, devices);
    if (choice.problem.empty() && std::ranges::find(seen, choice.device) != seen.end()) {
      choice.problem = "names a device again";
    }
    if (!choice.problem.empty()) {
      visible.note = "CUDA_VISIBLE_DEVICES: \"" + std::string(word) + "\" " + choice.problem +
                     "; it and what follows it are not visible";
      break;
    }
    seen.push_back(choice.device);
    add(devices[choice.device]);
  }
  if (seen.empty() && visible.note.empty()) {
    visible.note = "CUDA_VISIBLE_DEVICES is empty: no device is visible";
  }
  return visible;
}

}  // namespace outboard::topology
