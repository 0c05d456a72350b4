// SPDX-License-Identifier: Apache-2.0
/// GPUs of made-up machines: on which node each is, and which of them a program sees.
#include "topology/gpus.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "topology/fixture_gpu.hpp"

namespace outboard::topology {
namespace {

namespace fixture = testing::fixture;
using testing::FixtureRoot;
using Nodes = std::vector<std::optional<std::uint32_t>>;

const char* const kFirst = "0000:17:00.0";
const char* const kSecond = "0000:65:00.0";
const char* const kThird = "0000:ca:00.0";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// GPU 0 on node 0, GPUs 1 and 2 on node 1.
void write_three(const FixtureRoot& root) {
  fixture::write_machine(root, {});
  fixture::write_gpu(root, {.address = kFirst, .numa_node = "0"});
  fixture::write_gpu(root, {.address = kSecond, .numa_node = "1"});
  fixture::write_gpu(root, {.address = kThird, .numa_node = "1"});
}

Nodes nodes_of(const std::vector<Gpu>& gpus) {
  Nodes nodes;
  for (const Gpu& gpu : gpus) nodes.push_back(gpu.node);
  return nodes;
}

TEST(Gpus, AreNvidiasDisplayAndComputeDevicesByAddress) {
  const FixtureRoot root;
  write_three(root);
  fixture::write_gpu(root, {.address = "0000:17:00.1", .numa_node = "0", .kind = "0x040300"});
  fixture::write_gpu(root, {.address = "0000:02:00.0", .numa_node = "0", .vendor = "0x1a03"});
  root.write(
      "/proc/driver/nvidia/gpus/0000:65:00.0/information",
      "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 112\nGPU UUID: \t GPU-01234567-89ab\n");
  const std::vector<Gpu> gpus = read_gpus(root.path(), discover(root.path()));
  ASSERT_EQ(gpus.size(), 3U);
  EXPECT_EQ(gpus[0].pci_address, kFirst);
  EXPECT_EQ(gpus[0].model, "");
  EXPECT_EQ(gpus[1].pci_address, kSecond);
  EXPECT_EQ(gpus[1].model, "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(gpus[1].uuid, "GPU-01234567-89ab");
  EXPECT_EQ(nodes_of(gpus), (Nodes{0, 1, 1}));
  EXPECT_EQ(gpus[0].node_note, "by numa_node");
}

// As in /sys: the folder is a link to one below that of the port it is plugged into.
TEST(Gpus, ALinkIsAsFastAsTheSlowerOfItsEnds) {
  for (const auto& [port, rate] : {std::pair{"8.0 GT/s PCIe", 8.0},
                                   std::pair{"32.0 GT/s PCIe", 16.0}, std::pair{"Unknown", 16.0}}) {
    const FixtureRoot root;
    fixture::write_machine(root, {});
    fixture::write_gpu(root, {.address = kFirst});
    const std::filesystem::path listed = root.path() + "/sys/bus/pci/devices/" + kFirst;
    const std::filesystem::path real = root.path() + "/sys/devices/pci0000:16/0000:16:02.0/";
    std::filesystem::create_directories(real);
    std::filesystem::rename(listed, real / kFirst);
    std::filesystem::create_directory_symlink(real / kFirst, listed);
    root.write("/sys/devices/pci0000:16/0000:16:02.0/max_link_speed", std::string(port) + "\n");
    const std::vector<Gpu> gpus = read_gpus(root.path(), discover(root.path()));
    ASSERT_EQ(gpus.size(), 1U);
    EXPECT_DOUBLE_EQ(gpus[0].link.most_gt_per_s, rate) << port;
  }
}

TEST(Gpus, LinksHaveSpeedAndLanes) {
  const FixtureRoot root;
  fixture::write_machine(root, {});
  fixture::write_gpu(root, {.address = kFirst, .speed = "2.5 GT/s PCIe", .lanes = "8"});
  fixture::write_gpu(root, {.address = kSecond, .speed = "Unknown", .lanes = "255"});
  const std::vector<Gpu> gpus = read_gpus(root.path(), discover(root.path()));
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].link.gt_per_s, 2.5);
  EXPECT_EQ(gpus[0].link.lanes, 8U);
  EXPECT_EQ(gpus[0].link.most_gt_per_s, 16.0);
  EXPECT_EQ(gpus[0].link.most_lanes, 16U);
  EXPECT_NEAR(gpus[0].link.bytes_per_s(), 15.75e9, 1e7);  // 16 GT/s on 8 lanes
  EXPECT_EQ(gpus[1].link.gt_per_s, 0.0);
  EXPECT_EQ(gpus[1].link.lanes, 0U);
  EXPECT_EQ(gpus[1].link.bytes_per_s(), 0.0);
}

struct UnknownNode {
  const char* numa_node;  // null: no such file
  const char* says;
};

TEST(Gpus, AnUnknownNodeIsNoIndex) {
  for (const UnknownNode& c :
       {UnknownNode{"-1", "numa_node says -1"}, UnknownNode{nullptr, "no file numa_node"},
        UnknownNode{"7", "numa_node says 7"}, UnknownNode{"fish", "numa_node says fish"},
        UnknownNode{"4294967296", "numa_node says 4294967296"}}) {
    SCOPED_TRACE(c.says);
    const FixtureRoot root;
    fixture::write_machine(root, {});
    fixture::write_gpu(root, {.address = kFirst, .numa_node = c.numa_node, .near_cpus = "0-7"});
    const std::vector<Gpu> gpus = read_gpus(root.path(), discover(root.path()));
    ASSERT_EQ(gpus.size(), 1U);
    EXPECT_EQ(gpus[0].node, std::nullopt);
    EXPECT_TRUE(has(gpus[0].node_note, "unknown: ") && has(gpus[0].node_note, c.says))
        << gpus[0].node_note;
  }
}

TEST(Gpus, NearCpusTellTheNodeWhereItsNumberDoesNot) {
  for (const char* numa_node : {static_cast<const char*>(nullptr), "-1", "7"}) {
    const FixtureRoot root;
    fixture::write_machine(root, {});
    fixture::write_gpu(root, {.address = kFirst, .numa_node = numa_node, .near_cpus = "4-7"});
    const std::vector<Gpu> gpus = read_gpus(root.path(), discover(root.path()));
    ASSERT_EQ(gpus.size(), 1U);
    EXPECT_EQ(gpus[0].node, 1U);
    EXPECT_TRUE(has(gpus[0].node_note, "by local_cpulist; ")) << gpus[0].node_note;
  }
}

TEST(Gpus, NodesGoByTheirOsNumberAndMemoryOnlyOnesByTheirNeighbour) {
  const FixtureRoot root;
  fixture::write_machine(root, {.nodes = 3});
  fixture::write_node(root, 3, 0, 0, 1U << 20);
  fixture::write_distances(root, 4);
  fixture::allow_cpus(root, "4-11");  // of NUMA nodes 1 and 2
  fixture::write_gpu(root, {.address = kFirst, .numa_node = "1"});
  fixture::write_gpu(root, {.address = kSecond, .numa_node = "2"});
  fixture::write_gpu(root, {.address = kThird, .numa_node = "3"});
  const Machine machine = discover(root.path());
  ASSERT_EQ(machine.nodes.size(), 2U);
  EXPECT_EQ(nodes_of(read_gpus(root.path(), machine)), (Nodes{0, 1, 1}));
}

TEST(Gpus, OneNodeIsTheNode) {
  const FixtureRoot root;
  fixture::write_machine(root, {.nodes = 1});
  fixture::write_gpu(root, {.address = kFirst, .numa_node = "-1"});
  const std::vector<Gpu> gpus = read_gpus(root.path(), discover(root.path()));
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].node, 0U);
  EXPECT_EQ(gpus[0].node_note, "the only node");
}

TEST(PciAddress, IsTheSystemsHoweverItIsWritten) {
  for (const char* text :
       {"0000:3b:00.0", "0000:3B:00.0", "00000000:3B:00.0", "3b:00.0", "3B:00"}) {
    EXPECT_EQ(pci_address_of(text), "0000:3b:00.0") << text;
  }
  EXPECT_EQ(pci_address_of("00010000:01:00.0"), "10000:01:00.0");
  EXPECT_EQ(pci_address_of(""), "");
}

class VisibleGpusTest : public ::testing::Test {
 protected:
  VisibleGpusTest() { write_three(root_); }

  VisibleGpus see(std::optional<std::string_view> variable) const {
    return visible_gpus(variable, drivers_, read_gpus(root_.path(), discover(root_.path())));
  }

  FixtureRoot root_;
  // The driver counts the fastest first, and writes addresses its own way.
  std::vector<DriverDevice> drivers_ = {{"0000:17:00.0", "GPU-aaaa1111-0000", {}, 0, 0},
                                        {"00000000:65:00.0", "GPU-aaaa2222-0000", {}, 0, 0},
                                        {"0000:CA:00.0", "GPU-bbbb3333-0000", {}, 0, 0}};
};

struct Seen {
  const char* variable;
  std::vector<const char*> addresses;
  Nodes nodes;
};

TEST_F(VisibleGpusTest, NumbersUuidsAndOrderGoByAddress) {
  for (const Seen& c :
       {Seen{"1", {kSecond}, {1}}, Seen{"2,0", {kThird, kFirst}, {1, 0}},
        Seen{"GPU-aaaa1111-0000", {kFirst}, {0}}, Seen{"GPU-bbbb, 1", {kThird, kSecond}, {1, 1}},
        Seen{" 0 ", {kFirst}, {0}}}) {
    SCOPED_TRACE(c.variable);
    const VisibleGpus visible = see(c.variable);
    EXPECT_EQ(visible.note, "");
    ASSERT_EQ(visible.gpus.size(), c.addresses.size());
    for (std::size_t i = 0; i < c.addresses.size(); ++i) {
      EXPECT_EQ(visible.gpus[i].pci_address, c.addresses[i]);
      EXPECT_EQ(visible.gpus[i].node, c.nodes[i]);
    }
  }
}

TEST_F(VisibleGpusTest, TheDriversOrderIsWhatNumbersMean) {
  std::swap(drivers_[0], drivers_[2]);
  const VisibleGpus visible = see("0");
  ASSERT_EQ(visible.gpus.size(), 1U);
  EXPECT_EQ(visible.gpus[0].pci_address, kThird);
  EXPECT_EQ(visible.gpus[0].node, 1U);
}

TEST_F(VisibleGpusTest, WithoutTheVariableAllAreVisible) {
  const VisibleGpus visible = see(std::nullopt);
  EXPECT_EQ(visible.note, "");
  ASSERT_EQ(visible.gpus.size(), 3U);
  EXPECT_EQ(visible.gpus[2].pci_address, kThird);
}

TEST_F(VisibleGpusTest, TheFirstStrangeWordEndsTheListAndIsNamed) {
  struct Case {
    const char* variable;
    std::size_t gpus;
    const char* says;
  };
  for (const Case& c : {Case{"", 0, "is empty"}, Case{"-1", 0, "\"-1\""}, Case{"3", 0, "below 3"},
                        Case{"0,7,1", 1, "\"7\""}, Case{"1,1", 1, "again"},
                        Case{"GPU-aaaa", 0, "several"}, Case{"GPU-cccc", 0, "names no device"},
                        Case{"MIG-1,0", 0, "part of a device"}, Case{"0,fish", 1, "\"fish\""}}) {
    SCOPED_TRACE(c.variable);
    const VisibleGpus visible = see(c.variable);
    EXPECT_EQ(visible.gpus.size(), c.gpus);
    EXPECT_TRUE(has(visible.note, c.says)) << visible.note;
  }
}

TEST_F(VisibleGpusTest, ADeviceThatTheSystemHidesHasNoNode) {
  drivers_.push_back({"0000:ff:00.0", "GPU-dddd", {}, 0, 0});
  const VisibleGpus visible = see("3");
  ASSERT_EQ(visible.gpus.size(), 1U);
  EXPECT_EQ(visible.gpus[0].node, std::nullopt);
}

}  // namespace
}  // namespace outboard::topology
