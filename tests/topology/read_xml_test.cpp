// SPDX-License-Identifier: Apache-2.0
/// Machines in files that hwloc wrote: nodes, what a control group forbids of them, GPUs.
#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "topology/fixture_root.hpp"
#include "topology/gpus.hpp"
#include "topology/machine.hpp"

namespace outboard::topology {
namespace {

using Cpus = std::vector<std::uint32_t>;
using testing::FixtureRoot;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

struct XmlMachine {
  const char* allowed_cpus = "0x0000000f";
  const char* allowed_nodes = "0x00000007";
  const char* beside_node_1 = "";   ///< devices
  const char* beside_no_node = "";  ///< likewise, of the whole machine
};

/// Two packages of a core of two cpus and a node each; the second has memory without cpus too.
std::string path_of(const FixtureRoot& root, const XmlMachine& machine) {
  const std::string text =
      std::string(R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" allowed_cpuset=")") +
      machine.allowed_cpus +
      R"(" nodeset="0x00000007" complete_nodeset="0x00000007" allowed_nodeset=")" +
      machine.allowed_nodes + R"(" gp_index="1">
    <object type="Package" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
      <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3" local_memory="4294967296"/>
      <object type="Core" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4">
        <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5"/>
        <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="6"/>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000006" complete_nodeset="0x00000006" gp_index="7">
      <object type="NUMANode" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="8" local_memory="8589934592"/>
      <object type="NUMANode" os_index="2" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000004" complete_nodeset="0x00000004" gp_index="12" local_memory="1073741824"/>
      <object type="Core" os_index="0" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000006" complete_nodeset="0x00000006" gp_index="9">
        <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000006" complete_nodeset="0x00000006" gp_index="10"/>
        <object type="PU" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000006" complete_nodeset="0x00000006" gp_index="11"/>
      </object>
)" + machine.beside_node_1 +
      "    </object>\n" + machine.beside_no_node + "  </object>\n</topology>\n";
  root.write("/machine.xml", text);
  return root.path() + "/machine.xml";
}

TEST(ReadXml, NodesOfAFileAsLstopoWritesIt) {
  const FixtureRoot root;
  const Machine machine = read_xml(path_of(root, {}));
  ASSERT_EQ(machine.nodes.size(), 2U);
  EXPECT_EQ(machine.nodes[1].cores, (Cpus{2}));
  EXPECT_EQ(machine.nodes[1].cpus, (Cpus{2, 3}));
  EXPECT_EQ(machine.nodes[1].memory_bytes, 8 * kGiB);
  ASSERT_EQ(machine.memory_nodes.size(), 1U);
  EXPECT_EQ(machine.memory_nodes[0].os_index, 2U);
  EXPECT_EQ(machine.memory_nodes[0].nearest, 1U);
  EXPECT_FALSE(machine.real);
}

/// A control group may allow cpus without the memory beside them, and the other way round.
TEST(ReadXml, ForbiddenMemoryIsNotUsed) {
  const FixtureRoot root;
  const Machine second = read_xml(path_of(root, {.allowed_nodes = "0x00000002"}));
  ASSERT_EQ(second.nodes.size(), 1U);
  EXPECT_EQ(second.nodes[0].os_index, 1U);
  EXPECT_EQ(second.nodes[0].memory_bytes, 8 * kGiB);
  EXPECT_EQ(second.nodes[0].cpus, (Cpus{0, 1, 2, 3})) << "all of them are allowed";
  EXPECT_TRUE(second.memory_nodes.empty());
  EXPECT_NE(second.notes.find("2 allowed cpus are of nodes whose memory is not allowed"),
            std::string::npos)
      << second.notes;
  const Machine first = read_xml(path_of(root, {.allowed_nodes = "0x00000001"}));
  ASSERT_EQ(first.nodes.size(), 1U);
  EXPECT_EQ(first.nodes[0].os_index, 0U);
  EXPECT_TRUE(first.memory_nodes.empty());
}

TEST(ReadXml, MemoryOfForbiddenCpusIsLeftAlone) {
  const FixtureRoot root;
  const Machine machine = read_xml(path_of(root, {.allowed_cpus = "0x00000003"}));
  ASSERT_EQ(machine.nodes.size(), 1U);
  EXPECT_EQ(machine.nodes[0].os_index, 0U);
  EXPECT_EQ(machine.nodes[0].cpus, (Cpus{0, 1}));
  EXPECT_TRUE(machine.memory_nodes.empty());
}

TEST(ReadXml, GpusWithAddressModelNodeAndLink) {
  const FixtureRoot root;
  const std::string path = path_of(root, {.beside_node_1 = R"(
      <object type="Bridge" gp_index="20" bridge_type="0-1" depth="0" bridge_pci="0000:[3b-3c]">
        <object type="PCIDev" gp_index="21" pci_busid="0000:3c:00.0" pci_type="0200 [8086:1572] [0000:0000] 01" pci_link_speed="7.876923"/>
        <object type="PCIDev" gp_index="22" pci_busid="0000:3b:00.0" pci_type="0302 [10de:20b0] [10de:1134] a1" pci_link_speed="31.507692">
          <info name="PCIDevice" value="GA100 [A100]"/>
        </object>
      </object>
)",
                                          .beside_no_node = R"(
    <object type="Bridge" gp_index="30" bridge_type="0-1" depth="0" bridge_pci="0000:[17-17]">
      <object type="PCIDev" gp_index="31" pci_busid="0000:17:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="0.000000"/>
    </object>
)"});
  const std::vector<Gpu> gpus = read_xml_gpus(path, read_xml(path));
  ASSERT_EQ(gpus.size(), 2U) << "a network card is none";
  EXPECT_EQ(gpus[0].pci_address, "0000:17:00.0");
  EXPECT_EQ(gpus[0].node, std::nullopt);
  EXPECT_EQ(gpus[0].node_note, "unknown: the file has it beside 2 nodes");
  EXPECT_EQ(gpus[0].link.bytes_per_s(), 0.0);
  EXPECT_EQ(gpus[1].pci_address, "0000:3b:00.0");
  EXPECT_EQ(gpus[1].model, "GA100 [A100]");
  EXPECT_EQ(gpus[1].node, 1U);
  EXPECT_NEAR(gpus[1].link.bytes_per_s(), 31.5e9, 0.1e9);
  EXPECT_TRUE(read_xml_gpus(path_of(root, {}), read_xml(path)).empty());
}

TEST(ReadXml, WhatIsNoneIsRefusedByName) {
  const FixtureRoot root;
  root.write("/fish.xml", "<fish/>\n");
  for (const std::string& path : {root.path() + "/fish.xml", std::string("/nowhere/at/all.xml")}) {
    testing::expect_error(ErrorCode::invalid_config, {path, "lstopo"},
                          [&] { (void)read_xml(path); });
    testing::expect_error(ErrorCode::invalid_config, {path, "lstopo"},
                          [&] { (void)read_xml_gpus(path, {}); });
  }
}

}  // namespace
}  // namespace outboard::topology
