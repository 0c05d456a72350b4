// SPDX-License-Identifier: Apache-2.0
// GPUs in a file that hwloc wrote.
#include <algorithm>
#include <array>
#include <cstdio>

#include "outboard/error.hpp"
#include "topology/gpus.hpp"
#include "topology/hwloc_handle.hpp"

namespace outboard::topology {
namespace {

using PciDevice = hwloc_obj_attr_u::hwloc_pcidev_attr_s;

constexpr unsigned kNvidia = 0x10de;
constexpr unsigned kDisplay = 0x03;  // 0x0300 VGA, 0x0302 compute

std::string address_of(const PciDevice& device) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", unsigned{device.domain},
                      unsigned{device.bus}, unsigned{device.dev}, unsigned{device.func});
  return text.data();
}

/// Where the file hangs the device: beside the cpus of one node, or of several.
void place(Gpu& gpu, hwloc_const_cpuset_t cpus, const Machine& machine) {
  std::vector<std::uint32_t> near;
  for (std::uint32_t i = 0; i < machine.nodes.size(); ++i) {
    const bool some = std::ranges::any_of(machine.nodes[i].cpus, [&](std::uint32_t cpu) {
      return hwloc_bitmap_isset(cpus, cpu) != 0;
    });
    if (some) near.push_back(i);
  }
  if (machine.nodes.size() == 1) {
    gpu.node = 0;
    gpu.node_note = "the only node";
  } else if (near.size() == 1) {
    gpu.node = near.front();
    gpu.node_note = "by the file";
  } else {
    gpu.node_note =
        "unknown: the file has it beside " +
        (near.empty() ? std::string("no allowed node") : std::to_string(near.size()) + " nodes");
  }
}

}  // namespace

std::vector<Gpu> read_xml_gpus(const std::string& path, const Machine& machine) {
  const TopologyHandle topology = make_topology();
  if (!topology ||
      hwloc_topology_set_type_filter(topology.get(), HWLOC_OBJ_PCI_DEVICE,
                                     HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0 ||
      hwloc_topology_set_xml(topology.get(), path.c_str()) != 0 ||
      hwloc_topology_load(topology.get()) != 0) {
    throw Error(ErrorCode::invalid_config,
                "machine file " + path +
                    " is not one that hwloc reads; write it with `lstopo machine.xml`");
  }
  std::vector<Gpu> gpus;
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_pcidev(topology.get(), object)) != nullptr;) {
    const PciDevice& device = object->attr->pcidev;
    if (device.vendor_id != kNvidia || device.class_id >> 8 != kDisplay) continue;
    Gpu& gpu = gpus.emplace_back();
    gpu.pci_address = address_of(device);
    if (const char* model = hwloc_obj_get_info_by_name(object, "PCIDevice")) gpu.model = model;
    gpu.link.told_bytes_per_s = static_cast<double>(device.linkspeed) * 1e9;
    place(gpu, hwloc_get_non_io_ancestor_obj(topology.get(), object)->cpuset, machine);
  }
  std::ranges::sort(gpus, {}, &Gpu::pci_address);
  return gpus;
}

}  // namespace outboard::topology
