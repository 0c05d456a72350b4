// SPDX-License-Identifier: Apache-2.0
/// GPUs by their PCI addresses, which driver and system share: the numbers of devices differ from
/// process to process.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/machine.hpp"

namespace outboard::topology {

/// 0: unknown. A link that rests may have a lower speed than under load, but has all its lanes.
struct PciLink {
  double gt_per_s = 0.0;  ///< of each lane, now
  std::uint32_t lanes = 0;
  double most_gt_per_s = 0.0;  ///< what both the GPU and its slot are built for
  std::uint32_t most_lanes = 0;
  double told_bytes_per_s = 0.0;  ///< of the whole link, where nothing tells of lanes

  /// Each way, at full speed on the lanes in use, before packets' heads; 0: unknown.
  [[nodiscard]] double bytes_per_s() const noexcept;
};

struct Gpu {
  std::string pci_address;              ///< "0000:3b:00.0"
  std::string model{};                  ///< as the kernel's driver tells; "" if it does not
  std::string uuid{};                   ///< "GPU-..."; likewise
  std::optional<std::uint32_t> node{};  ///< index in Machine::nodes; none: unknown, no preference
  std::string node_note{};              ///< what tells the node, or why nothing does
  PciLink link{};
};

/// NVIDIA's display and compute devices below `root`/sys/bus/pci/devices, by address. Never throws
/// for what it reads. What numa_node says is looked for among the machine's nodes and never used
/// as an index; where it names none of them, the list of near cpus may tell.
[[nodiscard]] std::vector<Gpu> read_gpus(const std::string& root, const Machine& machine);

/// The same from a file that hwloc wrote with its devices (`lstopo machine.xml`), which tells
/// neither lanes nor UUIDs. @throws Error{invalid_config} naming the file if hwloc cannot read it.
[[nodiscard]] std::vector<Gpu> read_xml_gpus(const std::string& path, const Machine& machine);

/// As sysfs writes it, from any way to write it: "00000000:3B:00.0", "3b:00.0".
[[nodiscard]] std::string pci_address_of(std::string_view text);

/// A device as the driver counts it when nothing hides any.
struct DriverDevice {
  std::string pci_address;
  std::string uuid;                ///< "GPU-..."; "" if unknown
  std::string name = {};           ///< "" if unknown
  std::uint64_t memory_bytes = 0;  ///< 0: unknown
  int compute_mode = 0;            ///< 0: default, 2: prohibited, 3: one process
  bool in_use = false;             ///< by another process, which the mode lets have it alone
};

/// A device that a program sees, in the order in which it sees them.
struct VisibleGpu {
  std::string pci_address;
  std::optional<std::uint32_t> node;  ///< as Gpu::node
};
struct VisibleGpus {
  std::vector<VisibleGpu> gpus;
  std::string note;  ///< "" or what of the variable is not as it looks
};
/// What CUDA_VISIBLE_DEVICES leaves of `devices`: numbers or beginnings of UUIDs, in its order, up
/// to the first that names none. nullopt: the variable is not set, all are visible.
[[nodiscard]] VisibleGpus visible_gpus(std::optional<std::string_view> variable,
                                       std::span<const DriverDevice> devices,
                                       std::span<const Gpu> gpus);

}  // namespace outboard::topology
