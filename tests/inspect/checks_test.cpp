// SPDX-License-Identifier: Apache-2.0
/// What the checks say of machines good and bad.
#include "inspect/checks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace outboard::inspect {
namespace {

using topology::DriverState;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Two nodes, one GPU, everything permitted and as it should be.
HostReport healthy() {
  HostReport report;
  report.machine = topology::synthetic("numa:2(memory=8GiB) core:4 pu:1");
  report.threads = topology::choose_threads(report.machine, 0, 1);
  report.limits.lock_bytes = std::numeric_limits<std::uint64_t>::max();
  report.limits.transparent_huge_pages = "madvise";
  report.memory = {16 * kGiB, 2 * kGiB, "/proc/meminfo", "raise the limit"};
  topology::Gpu gpu;
  gpu.pci_address = "0000:65:00.0";
  gpu.node = 1;
  gpu.node_note = "by numa_node";
  gpu.link = {.gt_per_s = 2.5, .lanes = 16, .most_gt_per_s = 16.0, .most_lanes = 16};
  report.gpus = {gpu};
  report.driver = DriverFindings{{DriverState::ready, "1 device, CUDA 13.0", ""}, {}};
  report.binding = topology::BindingReport{};
  report.kernels = Kernels{"avx512", {"avx512", "avx2", "scalar"}, ""};
  report.backends = {"sim", "cuda"};
  return report;
}

std::size_t count(const std::vector<Check>& checks, Health health) {
  return static_cast<std::size_t>(std::ranges::count(checks, health, &Check::health));
}

TEST(Checks, AHealthyMachineHasNothingToLookAt) {
  const std::vector<Check> checks = checks_of(healthy());
  EXPECT_EQ(count(checks, Health::ok), checks.size());
  for (const Check& check : checks) {
    EXPECT_LE(check.name.size(), 15U) << check.name;
    EXPECT_FALSE(check.found.empty()) << check.name;
    EXPECT_EQ(check.remedy, "") << check.name;
  }
}

struct Ailment {
  const char* name;  // of the check that tells
  Health health;
  const char* found;
  const char* remedy;
  void (*befall)(HostReport& report);
};

TEST(Checks, EachAilmentIsToldAloneWithARemedy) {
  for (const Ailment& ailment : {
           Ailment{"driver", Health::fail, "forbidden: /dev/nvidiactl", "--gpus all",
                   [](HostReport& report) {
                     report.driver->report = {DriverState::forbidden, "/dev/nvidiactl: refused",
                                              "--gpus all"};
                   }},
           Ailment{
               "driver", Health::fail, "driver error: cuInit fails with 803", "reboot",
               [](HostReport& report) {
                 report.driver->report = {DriverState::failed, "cuInit fails with 803", "reboot"};
               }},
           Ailment{"driver", Health::warn, "the software GPU works", "install",
                   [](HostReport& report) {
                     report.driver->report = {DriverState::no_library, "no library",
                                              "install the driver"};
                   }},
           Ailment{"back-ends", Health::warn, "no CUDA back-end", "a build with",
                   [](HostReport& report) { report.backends = {"sim"}; }},
           Ailment{"GPU 65:00.0", Health::warn, "node unknown: numa_node says -1", "firmware",
                   [](HostReport& report) {
                     report.gpus[0].node.reset();
                     report.gpus[0].node_note = "unknown: numa_node says -1";
                   }},
           Ailment{"  its link", Health::warn, "PCIe 4.0 x8, 15.8 GB/s, and it has 16 lanes",
                   "slot", [](HostReport& report) { report.gpus[0].link.lanes = 8; }},
           Ailment{"visible GPUs", Health::warn, "\"7\" is not below 1", "CUDA_VISIBLE_DEVICES",
                   [](HostReport& report) { report.visible.note = "\"7\" is not below 1"; }},
           Ailment{"NUMA", Health::warn, "not available", "kernel",
                   [](HostReport& report) { report.machine.numa_known = false; }},
           Ailment{"NUMA", Health::warn, "fewer cores than there are nodes", "raise the quota",
                   [](HostReport& report) {
                     report.machine.quota_cores = 1;
                     report.machine = topology::within_quota(std::move(report.machine));
                     report.machine.quota_cores = 0;  // what it says of itself is told elsewhere
                   }},
           Ailment{"NUMA", Health::warn, "node 1 has no memory", "modules",
                   [](HostReport& report) { report.machine.nodes[1].memory_bytes = 0; }},
           Ailment{"memory binding", Health::warn, "not permitted: mbind: ", "--cap-add SYS_NICE",
                   [](HostReport& report) {
                     report.binding->memory = topology::BindingRefusal{"mbind", EPERM};
                   }},
           Ailment{"thread binding", Health::warn, "sched_setaffinity: ", "seccomp",
                   [](HostReport& report) {
                     report.binding->threads = topology::BindingRefusal{"sched_setaffinity", EPERM};
                   }},
           Ailment{"CPU quota", Health::warn, "3 cores (cpu.max = 300000 100000)", "--cpus",
                   [](HostReport& report) {
                     report.machine.quota_cores = 3;
                     report.machine.quota_source = "cpu.max = 300000 100000";
                   }},
           Ailment{"CPU features", Health::warn, "scalar kernels", "AVX2",
                   [](HostReport& report) {
                     report.kernels = Kernels{"scalar", {"scalar"}, ""};
                   }},
           Ailment{"CPU features", Health::warn, "less than avx512", "unset OUTBOARD_SIMD",
                   [](HostReport& report) { report.kernels->target = "avx2"; }},
           Ailment{"CPU features", Health::warn, "no target fish", "OUTBOARD_SIMD",
                   [](HostReport& report) { report.kernels->problem = "no target fish"; }},
           Ailment{"memory", Health::warn, "1 GiB of 16 GiB left", "raise the limit",
                   [](HostReport& report) { report.memory.used_bytes = 15 * kGiB; }},
           Ailment{"memory", Health::fail, "0 B of 16 GiB left", "raise the limit",
                   [](HostReport& report) { report.memory.used_bytes = 16 * kGiB; }},
           Ailment{"memory", Health::warn, "unknown", "/proc",
                   [](HostReport& report) { report.memory = {}; }},
           Ailment{"memory lock", Health::warn, "64 KiB may be locked", "LimitMEMLOCK=infinity",
                   [](HostReport& report) { report.limits.lock_bytes = 65536; }},
           Ailment{"huge pages", Health::warn, "never", "transparent_hugepage/enabled",
                   [](HostReport& report) { report.limits.transparent_huge_pages = "never"; }},
           Ailment{"huge pages", Health::warn, "0 of 512 reserved ones", "transparent_hugepage",
                   [](HostReport& report) {
                     report.limits.transparent_huge_pages = "never";
                     for (const topology::Node& node : report.machine.nodes) {
                       report.limits.reserved_pages.push_back({node.os_index, 2048, 512, 0});
                       report.limits.reserved_pages.push_back({node.os_index, 1 << 20, 4, 4});
                     }
                   }},
           Ailment{"WSL", Health::warn, "half", ".wslconfig",
                   [](HostReport& report) { report.limits.wsl = true; }},
       }) {
    SCOPED_TRACE(std::string(ailment.name) + ": " + ailment.found);
    HostReport report = healthy();
    ailment.befall(report);
    const std::vector<Check> checks = checks_of(report);
    const auto told = std::ranges::find(checks, ailment.name, &Check::name);
    ASSERT_NE(told, checks.end());
    EXPECT_EQ(told->health, ailment.health);
    EXPECT_TRUE(has(told->found, ailment.found)) << told->found;
    EXPECT_TRUE(has(told->remedy, ailment.remedy)) << told->remedy;
    EXPECT_EQ(count(checks, Health::ok), checks.size() - 1) << "nothing else ails";
  }
}

TEST(Checks, WhatDoesNoHarmIsNoWarning) {
  HostReport report = healthy();
  report.limits.lock_bytes = 65536;
  report.limits.may_lock_more = true;
  report.limits.transparent_huge_pages = "never";
  report.limits.reserved_pages = {{.os_index = 1, .page_kib = 2048, .total = 512, .free = 500}};
  report.machine.nodes[0].os_index = 1;
  report.machine.quota_cores = 8;
  report.machine.nodes.resize(1);
  report.binding->memory = topology::BindingRefusal{"mbind", ENOSYS};
  report.driver->report = {DriverState::no_library, "no NVIDIA GPU", ""};
  report.backends = {"sim"};
  const std::vector<Check> checks = checks_of(report);
  EXPECT_EQ(count(checks, Health::ok), checks.size());
  const auto binding = std::ranges::find(checks, "memory binding", &Check::name);
  ASSERT_NE(binding, checks.end());
  EXPECT_TRUE(has(binding->found, "not permitted: mbind: ") &&
              has(binding->found, "not needed with one node"))
      << binding->found;
  const auto pages = std::ranges::find(checks, "huge pages", &Check::name);
  ASSERT_NE(pages, checks.end());
  EXPECT_TRUE(has(pages->found, "NUMA node 1 has 500 of 512 reserved ones of 2 MiB free"))
      << pages->found;
}

TEST(ShowBytes, KeepsWholeNumbersWhole) {
  EXPECT_EQ(show_bytes(0), "0 B");
  EXPECT_EQ(show_bytes(65536), "64 KiB");
  EXPECT_EQ(show_bytes(3 * kGiB / 2), "1.5 GiB");
  EXPECT_EQ(show_bytes(kGiB << 10), "1 TiB");
}

TEST(ShowLink, GenerationLanesAndRate) {
  EXPECT_EQ(show_link({.gt_per_s = 2.5, .lanes = 16, .most_gt_per_s = 32.0, .most_lanes = 16}),
            "PCIe 5.0 x16, 63.0 GB/s");
  EXPECT_EQ(show_link({.lanes = 4}), "PCIe x4");
  EXPECT_EQ(show_link({.told_bytes_per_s = 31.5e9}), "31.5 GB/s");
  EXPECT_EQ(show_link({}), "unknown");
}

}  // namespace
}  // namespace outboard::inspect
