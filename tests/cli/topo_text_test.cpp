// SPDX-License-Identifier: Apache-2.0
/// What `outboard topo` and `outboard doctor` print, to the letter.
#include <gtest/gtest.h>

#include "cli/doctor.hpp"
#include "cli/topo.hpp"

namespace outboard::cli {
namespace {

inspect::HostReport two_nodes() {
  inspect::HostReport report =
      inspect::inspect({.synthetic = "numa:2(memory=4GiB) core:4 pu:1"}, inspect::system_probes());
  report.question = {};
  topology::Gpu gpu;
  gpu.pci_address = "0000:65:00.0";
  gpu.model = "a GPU";
  gpu.node = 1;
  gpu.node_note = "by numa_node";
  gpu.link = {.gt_per_s = 16.0, .lanes = 16, .most_gt_per_s = 16.0, .most_lanes = 16};
  report.gpus = {gpu};
  report.visible.gpus = {{gpu.pci_address, gpu.node}};
  return report;
}

TEST(TopoPicture, HasABoxForEachNodeWithItsMemoryCoresAndGpus) {
  inspect::HostReport report = two_nodes();
  report.machine.memory_nodes = {{.os_index = 2, .memory_bytes = 1U << 30, .nearest = 0}};
  EXPECT_EQ(topo_picture(report),
            "+- node 0 -------------+  +- node 1 -------------+\n"
            "| 4 GiB                |  | 4 GiB                |\n"
            "| + 1 GiB, NUMA 2      |  | ###.                 |\n"
            "| ####                 |  | 3 threads, 42.9 %    |\n"
            "| 4 threads, 57.1 %    |  | GPU 0000:65:00.0     |\n"
            "+----------------------+  +----------------------+\n"
            "# a core that updates, . one that is left alone\n"
            "shared out by threads, equal buckets in forward order go to nodes 0 1 0 1 0 0 1\n"
            "0 1 0 1 0 0 1 0 1 0 1 0 0 1 0 1 0 ...\n");
}

TEST(TopoPicture, ManyCoresTakeAFewLines) {
  const inspect::HostReport report =
      inspect::inspect({.synthetic = "core:100 pu:1"}, inspect::system_probes());
  const std::string picture = topo_picture(report);
  EXPECT_NE(picture.find("| #################### |\n| #################### |\n"), std::string::npos)
      << picture;
  EXPECT_NE(picture.find("| and 40 more          |"), std::string::npos) << picture;
}

TEST(TopoText, ListsGpusWithAddressNodeAndLink) {
  const std::string text = topo_text(two_nodes());
  EXPECT_NE(text.find("GPU  PCI address      node    link                     model\n"
                      "  0  0000:65:00.0     1       PCIe 4.0 x16, 31.5 GB/s  a GPU\n"
                      "     node: by numa_node\n"
                      "visible: 0 is 0000:65:00.0, node 1\n"),
            std::string::npos)
      << text;
}

TEST(TopoText, AFilesGpusAreListedAndNobodySeesThem) {
  inspect::HostReport report = two_nodes();
  report.question.xml = "machine.xml";
  const std::string text = topo_text(report);
  EXPECT_NE(text.find("  0  0000:65:00.0     1"), std::string::npos) << text;
  EXPECT_EQ(text.find("visible"), std::string::npos) << text;
  EXPECT_NE(topo_json(report).find("0000:65:00.0"), std::string::npos);
  report.gpus.clear();
  EXPECT_NE(topo_text(report).find("no NVIDIA GPU in the file"), std::string::npos);
}

TEST(TopoText, SaysWhatSharesGoBy) {
  const std::string text = topo_text(two_nodes());
  EXPECT_NE(text.find("share: by threads; an engine whose nodes update at other rates"),
            std::string::npos)
      << text;
  const inspect::HostReport one =
      inspect::inspect({.synthetic = "core:4 pu:1"}, inspect::system_probes());
  EXPECT_EQ(topo_text(one).find("share: by"), std::string::npos);
}

TEST(TopoText, CpuListsAreRangesAndMayBeBroken) {
  EXPECT_EQ(cpu_list({0, 1, 2, 3, 16, 18, 19}), "0-3, 16, 18-19");
  EXPECT_EQ(cpu_list({}), "");
}

TEST(Wrapped, NoLineIsLongerThan80Columns) {
  EXPECT_EQ(wrapped("a b", 4), "a b\n");
  EXPECT_EQ(wrapped("", 4), "\n");
  const std::string word(38, 'x');
  EXPECT_EQ(wrapped(word + " " + word + " b", 3), word + " " + word + "\n   b\n");
  EXPECT_EQ(wrapped(word + " " + word + " b", 1), word + " " + word + " b\n");
}

TEST(DoctorText, StateNameFindingAndRemedyAreAligned) {
  const std::vector<inspect::Check> checks = {
      {"driver", inspect::Health::ok, "2 devices", ""},
      {"memory lock", inspect::Health::warn, "64 KiB", "ulimit -l unlimited"},
      {"memory", inspect::Health::fail, "0 B left", "end what else runs"}};
  EXPECT_EQ(doctor_text(checks),
            "[ OK ] driver           2 devices\n"
            "[WARN] memory lock      64 KiB\n"
            "                     -> ulimit -l unlimited\n"
            "[FAIL] memory           0 B left\n"
            "                     -> end what else runs\n"
            "1 ok, 1 to look at, 1 failed\n");
}

}  // namespace
}  // namespace outboard::cli
