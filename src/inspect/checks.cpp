// SPDX-License-Identifier: Apache-2.0
#include "inspect/checks.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <numeric>

namespace outboard::inspect {
namespace {

using topology::DriverState;
using topology::Gpu;

constexpr std::uint64_t kLeastMemory = std::uint64_t{64} << 20;  // too little for any training

std::size_t cores_of(const topology::Machine& machine) {
  return std::accumulate(
      machine.nodes.begin(), machine.nodes.end(), std::size_t{0},
      [](std::size_t sum, const topology::Node& node) { return sum + node.cores.size(); });
}

constexpr std::uint64_t kPageKib = 2048;

std::string counted(std::size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

Check check_driver(const HostReport& report) {
  const topology::DriverReport& driver = report.driver->report;
  Check check{"driver", Health::ok, driver.found, driver.remedy};
  const bool broken = driver.state == DriverState::forbidden ||
                      driver.state == DriverState::too_old || driver.state == DriverState::failed;
  if (broken || driver.state == DriverState::busy) {
    check.health = broken ? Health::fail : Health::warn;
    check.found = std::string(topology::name_of(driver.state)) + ": " + driver.found;
  } else if (driver.state != DriverState::ready) {
    check.found += "; the software GPU works";
    if (!driver.remedy.empty()) check.health = Health::warn;
  }
  return check;
}

Check check_backends(const HostReport& report) {
  Check check{"back-ends", Health::ok, "software GPU", ""};
  if (std::ranges::find(report.backends, "cuda") != report.backends.end()) {
    check.found += ", CUDA";
    return check;
  }
  check.found += "; this build has no CUDA back-end";
  if (report.driver && report.driver->report.state == DriverState::ready) {
    check.health = Health::warn;
    check.remedy = "no GPU of this machine is used: take a build with a CUDA back-end";
  }
  return check;
}

void add_gpu(std::vector<Check>& checks, const Gpu& gpu) {
  Check place{"GPU " + gpu.pci_address.substr(gpu.pci_address.find(':') + 1), Health::ok, "", ""};
  if (!gpu.model.empty()) place.found = gpu.model + ", ";
  if (gpu.node) {
    place.found += "node " + std::to_string(*gpu.node) + " (" + gpu.node_note + ")";
  } else {
    place.health = Health::warn;
    place.found += "node " + gpu.node_note;
    place.remedy =
        "staging goes to no node in particular; a newer firmware, or ACPI and NUMA switched on in "
        "it, tells the node";
  }
  checks.push_back(place);
  if (gpu.link.lanes == 0) return;
  Check link{"  its link", Health::ok, show_link(gpu.link), ""};
  if (gpu.link.lanes < gpu.link.most_lanes) {
    link.health = Health::warn;
    link.found += ", and it has " + std::to_string(gpu.link.most_lanes) + " lanes";
    link.remedy =
        "copies take longer in proportion: put it into a slot of all lanes, seat it again, or look "
        "for bifurcation in the firmware";
  }
  checks.push_back(link);
}

Check check_lock(const HostReport& report) {
  Check check{"memory lock", Health::ok, "", ""};
  const auto& bytes = report.limits.lock_bytes;
  if (!bytes) {
    check.found = "limit unknown";
  } else if (*bytes == std::numeric_limits<std::uint64_t>::max()) {
    check.found = "unlimited";
  } else if (report.limits.may_lock_more) {
    check.found = show_bytes(*bytes) + ", which does not hold for this user (CAP_IPC_LOCK)";
  } else {
    check.found = show_bytes(*bytes) + " may be locked (ulimit -l)";
    if (report.memory.known() && *bytes >= report.memory.limit_bytes / 2) return check;
    check.health = Health::warn;
    check.remedy =
        std::string("pinned staging may fall back to pageable memory: ") + topology::kLockRemedy;
  }
  return check;
}

Check check_huge_pages(const HostReport& report) {
  const std::string& mode = report.limits.transparent_huge_pages;
  Check check{"huge pages", Health::ok, "transparent: " + (mode.empty() ? "unknown" : mode), ""};
  for (const topology::ReservedPages& pages : report.limits.reserved_pages) {
    check.found += "; NUMA node " + std::to_string(pages.os_index) + " has " +
                   std::to_string(pages.free) + " of " + std::to_string(pages.total) +
                   " reserved ones of " + show_bytes(pages.page_kib << 10) + " free";
  }
  // What the engine asks for, of which some are left. Others' sizes help nobody.
  const auto has_reserved = [&](const topology::Node& node) {
    return std::ranges::any_of(report.limits.reserved_pages, [&](const auto& pages) {
      return pages.os_index == node.os_index && pages.page_kib == kPageKib && pages.free > 0;
    });
  };
  const bool transparent = mode == "always" || mode == "madvise";
  if (!transparent && !std::ranges::all_of(report.machine.nodes, has_reserved)) {
    check.health = Health::warn;
    check.remedy =
        "the update is slower on small pages: as root, echo madvise > "
        "/sys/kernel/mm/transparent_hugepage/enabled";
  }
  return check;
}

Check check_quota(const HostReport& report) {
  const std::uint32_t quota = report.machine.quota_cores;
  if (quota == 0) return {"CPU quota", Health::ok, "none", ""};
  Check check{"CPU quota", Health::ok,
              counted(quota, "core") + " (" + report.machine.quota_source + ")", ""};
  if (quota < cores_of(report.machine)) {
    check.health = Health::warn;
    check.found += ", of " + counted(cores_of(report.machine), "allowed core");
    check.remedy =
        "no more threads than that are started: raise it (docker --cpus, CPUQuota=, "
        "a pod's limits.cpu) if updates are what a step waits for";
  }
  return check;
}

Check check_memory(const HostReport& report) {
  const topology::MemoryLimit& memory = report.memory;
  if (!memory.known()) {
    return {"memory", Health::warn, "how much is left is unknown",
            "mount /proc; until then a model that does not fit is not refused in time"};
  }
  Check check{"memory", Health::ok,
              show_bytes(memory.left_bytes()) + " of " + show_bytes(memory.limit_bytes) +
                  " left (" + memory.source + ")",
              ""};
  if (memory.left_bytes() < memory.limit_bytes / 10) check.health = Health::warn;
  if (memory.left_bytes() < kLeastMemory) check.health = Health::fail;
  if (check.health != Health::ok) {
    check.remedy = "end what else runs here";
    if (!memory.remedy.empty()) check.remedy += ", or " + memory.remedy;
  }
  return check;
}

Check check_numa(const HostReport& report) {
  const topology::Machine& machine = report.machine;
  if (!machine.numa_known && machine.nodes_beyond_quota) {
    return {"NUMA", Health::warn, "not used: the CPU quota is of fewer cores than there are nodes",
            "raise the quota; until then one node stands for all, and no memory is bound"};
  }
  if (!machine.numa_known) {
    return {"NUMA", Health::warn, "not available: one node stands for all",
            "on one socket nothing is lost; else mount /sys, or use a kernel with NUMA"};
  }
  Check check{"NUMA", Health::ok, counted(machine.nodes.size(), "node"), ""};
  if (!machine.memory_nodes.empty()) {
    check.found += ", " + std::to_string(machine.memory_nodes.size()) + " of memory only";
  }
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    if (machine.nodes[i].memory_bytes > 0) continue;
    check.health = Health::warn;
    check.found += "; node " + std::to_string(i) + " has no memory of its own";
    check.remedy = "its share lies on other nodes: put memory modules beside every processor";
  }
  return check;
}

Check check_memory_binding(const HostReport& report) {
  const auto& refusal = report.binding->memory;
  if (!refusal) return {"memory binding", Health::ok, "permitted", ""};
  Check check{"memory binding", Health::warn, "not permitted: " + refusal->text(),
              refusal->remedy()};
  if (report.machine.nodes.size() == 1) {
    check.health = Health::ok;
    check.found += "; not needed with one node";
    check.remedy.clear();
  }
  return check;
}

Check check_thread_binding(const HostReport& report) {
  const auto& refusal = report.binding->threads;
  if (!refusal) return {"thread binding", Health::ok, "permitted", ""};
  return {"thread binding", Health::warn, "not permitted: " + refusal->text(), refusal->remedy()};
}

Check check_kernels(const HostReport& report) {
  const Kernels& kernels = *report.kernels;
  Check check{"CPU features", Health::ok, kernels.target + " kernels", ""};
  if (!report.limits.processor.empty()) check.found += ", " + report.limits.processor;
  if (!kernels.problem.empty()) {
    check.health = Health::warn;
    check.found += "; " + kernels.problem;
    check.remedy = "unset OUTBOARD_SIMD, or name one of the targets that are there";
  } else if (!kernels.supported.empty() && kernels.target != kernels.supported.front()) {
    check.health = Health::warn;
    check.found += "; OUTBOARD_SIMD asks for less than " + kernels.supported.front();
    check.remedy = "unset OUTBOARD_SIMD";
  } else if (kernels.target == "scalar") {
    check.health = Health::warn;
    check.remedy =
        "updates take several times as long: use a processor with AVX2, NEON or SVE, "
        "and a virtual machine that shows it (-cpu host)";
  }
  return check;
}

Check check_wsl() {
  return {"WSL", Health::warn, "Windows limits pinned memory to about half of this system's",
          "what exceeds it is staged through a pinned ring; raise memory= in .wslconfig"};
}

}  // namespace

std::string show_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024.0 && unit + 1 < kUnits.size(); ++unit) value /= 1024.0;
  std::array<char, 32> text{};
  const bool whole = value == static_cast<double>(static_cast<std::uint64_t>(value));
  (void)std::snprintf(text.data(), text.size(), whole ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

std::string show_link(const topology::PciLink& link) {
  struct Generation {
    double gt_per_s;
    const char* name;
  };
  constexpr std::array<Generation, 6> kGenerations = {
      {{2.5, "1.0"}, {5.0, "2.0"}, {8.0, "3.0"}, {16.0, "4.0"}, {32.0, "5.0"}, {64.0, "6.0"}}};
  std::array<char, 32> rate{};
  (void)std::snprintf(rate.data(), rate.size(), "%.1f GB/s", link.bytes_per_s() / 1e9);
  if (link.lanes == 0) return link.told_bytes_per_s > 0.0 ? rate.data() : "unknown";
  const double speed = std::max(link.gt_per_s, link.most_gt_per_s);
  std::string text = "PCIe";
  for (const Generation& generation : kGenerations) {
    if (generation.gt_per_s == speed) text += std::string(" ") + generation.name;
  }
  text += " x" + std::to_string(link.lanes);
  return speed > 0.0 ? text + ", " + rate.data() : text;
}

std::vector<Check> checks_of(const HostReport& report) {
  std::vector<Check> checks;
  if (report.driver) checks.push_back(check_driver(report));
  if (!report.backends.empty()) checks.push_back(check_backends(report));
  for (const Gpu& gpu : report.gpus) add_gpu(checks, gpu);
  if (!report.visible.note.empty()) {
    checks.push_back({"visible GPUs", Health::warn, report.visible.note,
                      "set CUDA_VISIBLE_DEVICES to what is there, or unset it"});
  }
  checks.push_back(check_numa(report));
  if (report.binding) {
    checks.push_back(check_memory_binding(report));
    checks.push_back(check_thread_binding(report));
  }
  checks.push_back(check_quota(report));
  checks.push_back({"threads", Health::ok, report.threads.why, ""});
  if (report.kernels) checks.push_back(check_kernels(report));
  if (!report.question.described()) {
    checks.push_back(check_memory(report));
    checks.push_back(check_lock(report));
    checks.push_back(check_huge_pages(report));
  }
  if (report.limits.wsl) checks.push_back(check_wsl());
  return checks;
}

}  // namespace outboard::inspect
