// SPDX-License-Identifier: Apache-2.0
/// A made-up machine as Linux describes it in /proc and /sys, below a FixtureRoot.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "topology/fixture_root.hpp"

namespace outboard::testing {

/// Cpu numbers count threads first, then cores, then nodes; at most 64 cpus.
struct FixtureShape {
  std::uint32_t nodes = 2;
  std::uint32_t cores_per_node = 2;
  std::uint32_t threads_per_core = 2;
  std::uint64_t node_kib = std::uint64_t{8} << 20;

  [[nodiscard]] std::uint32_t cpus_per_node() const { return cores_per_node * threads_per_core; }
  [[nodiscard]] std::uint32_t cpus() const { return nodes * cpus_per_node(); }
};

namespace fixture {

inline std::string range(std::uint32_t first, std::uint32_t count) {
  if (count == 0) return "";
  return std::to_string(first) + "-" + std::to_string(first + count - 1);
}

/// As the kernel writes it: hexadecimal words of 32 bits.
inline std::string mask(std::uint32_t first, std::uint32_t count) {
  char text[32];
  const std::uint64_t ones = count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  const std::uint64_t bits = ones << first;
  (void)std::snprintf(text, sizeof text, "%08x,%08x", static_cast<unsigned>(bits >> 32),
                      static_cast<unsigned>(bits & 0xFFFFFFFFU));
  return text;
}

inline void write_cpu(const FixtureRoot& root, const FixtureShape& shape, std::uint32_t cpu) {
  const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
  const std::uint32_t package = cpu / shape.cpus_per_node();
  const std::uint32_t first = cpu / shape.threads_per_core * shape.threads_per_core;
  root.write(folder + "physical_package_id", std::to_string(package) + "\n");
  root.write(folder + "core_id",
             std::to_string(cpu % shape.cpus_per_node() / shape.threads_per_core) + "\n");
  for (const char* name : {"thread_siblings", "core_cpus"}) {
    root.write(folder + name, mask(first, shape.threads_per_core) + "\n");
    root.write(folder + name + "_list", range(first, shape.threads_per_core) + "\n");
  }
  for (const char* name : {"core_siblings", "package_cpus"}) {
    root.write(folder + name, mask(package * shape.cpus_per_node(), shape.cpus_per_node()) + "\n");
  }
}

inline std::string node_folder(std::uint32_t node) {
  return "/sys/devices/system/node/node" + std::to_string(node);
}

/// `count` 0: memory only.
inline void write_node(const FixtureRoot& root, std::uint32_t node, std::uint32_t first_cpu,
                       std::uint32_t count, std::uint64_t kib) {
  root.write(node_folder(node) + "/cpumap", mask(first_cpu, count) + "\n");
  root.write(node_folder(node) + "/cpulist", range(first_cpu, count) + "\n");
  root.write(node_folder(node) + "/meminfo",
             "Node " + std::to_string(node) + " MemTotal:       " + std::to_string(kib) + " kB\n");
}

inline void write_distances(const FixtureRoot& root, std::uint32_t nodes) {
  for (std::uint32_t from = 0; from < nodes; ++from) {
    std::string row;
    for (std::uint32_t to = 0; to < nodes; ++to) {
      const std::uint32_t apart = from < to ? to - from : from - to;
      row += (to == 0 ? "" : " ") + std::to_string(apart == 0 ? 10 : 11 + 10 * apart);
    }
    root.write(node_folder(from) + "/distance", row + "\n");
  }
  root.write("/sys/devices/system/node/online", range(0, nodes) + "\n");
  root.write("/sys/devices/system/node/possible", range(0, nodes) + "\n");
}

inline void allow_cpus(const FixtureRoot& root, const std::string& list) {
  root.write("/proc/self/status", "Name:\tprogram\nCpus_allowed_list:\t" + list + "\n");
}

/// Cpus, nodes, memory; distances 10, 21, 31 ... by how far apart the numbers are.
inline void write_machine(const FixtureRoot& root, const FixtureShape& shape) {
  for (std::uint32_t cpu = 0; cpu < shape.cpus(); ++cpu) write_cpu(root, shape, cpu);
  for (const char* name : {"online", "possible", "present"}) {
    root.write("/sys/devices/system/cpu/" + std::string(name), range(0, shape.cpus()) + "\n");
  }
  for (std::uint32_t node = 0; node < shape.nodes; ++node) {
    write_node(root, node, node * shape.cpus_per_node(), shape.cpus_per_node(), shape.node_kib);
  }
  write_distances(root, shape.nodes);
  const std::uint64_t kib = shape.nodes * shape.node_kib;
  root.write("/proc/meminfo", "MemTotal:       " + std::to_string(kib) +
                                  " kB\nMemAvailable:   " + std::to_string(kib / 2) + " kB\n");
  root.write("/proc/self/cgroup", "0::/\n");
  root.write("/proc/mounts", "");
  allow_cpus(root, range(0, shape.cpus()));
}

}  // namespace fixture
}  // namespace outboard::testing
