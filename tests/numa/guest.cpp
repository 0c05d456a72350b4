// SPDX-License-Identifier: Apache-2.0
// The first process of a virtual machine with several NUMA nodes (tools/numa_check.sh): trains with
// the engine and asks the kernel where the pages of every arena lie and where the workers ran.
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>

#include "numa/guest_training.hpp"
#include "numa/page_placement.hpp"
#include "topology/machine.hpp"

namespace outboard::numa_test {
namespace {

using testing::TinyOptions;
using testing::TinyTrainer;

/// Trains on what this process may use, and looks after each step.
void train_and_look() {
  const std::uint64_t digest = digest_of_one_node(model());
  expect(train_and_look_at(model()).digest == digest, "the bits of one node");
}

// --- more than small arenas ----------------------------------------------------------------------

std::string huge_pages_of(int node) {
  return "/sys/devices/system/node/node" + std::to_string(node) + "/hugepages/hugepages-2048kB/";
}

/// Pages of 2 MiB that an administrator has set aside on one node take its arenas and slots; the
/// other nodes' lie in others.
void reserved_huge_pages() {
  const std::uint64_t digest = digest_of_one_node(large_model());
  const Nodes nodes = usable_nodes();
  const int last = nodes.back();
  const int wanted = 96 / static_cast<int>(nodes.size());  // more than its share of some 50
  write_file(huge_pages_of(last) + "nr_hugepages", std::to_string(wanted));
  const int free_before = std::stoi(first_line(huge_pages_of(last) + "free_hugepages"));
  expect(free_before == wanted,
         std::to_string(free_before) + " huge pages reserved, not " + std::to_string(wanted));
  const Looked looked = train_and_look_at(large_model());
  expect(looked.digest == digest, "the bits of one node");
  std::size_t reserved = 0;
  for (const LedgerEntry& entry : looked.ledger.entries) {
    const bool large = entry.place != MemoryPlace::device && entry.bytes >= std::size_t{2} << 20;
    if (!large) continue;
    const bool on_last = nodes.at(entry.node) == last;
    expect((entry.pages == PageKind::reserved_huge) == on_last, entry.purpose + ": its pages");
    reserved += on_last ? entry.bytes >> 21 : 0;
  }
  std::printf("  %zu of %d reserved huge pages of node %d taken\n", reserved, wanted, last);
  expect(reserved >= 4, "reserved huge pages are used");
  const int free_after = std::stoi(first_line(huge_pages_of(last) + "free_hugepages"));
  expect(free_after == wanted, "all of them come back");
  write_file(huge_pages_of(last) + "nr_hugepages", "0");
}

/// What a node with cpus has no room for goes to memory beside it, and is updated by its cores. All
/// of the state is that node's, however fast it is.
void memory_beside_a_full_node() {
  const topology::Machine machine = topology::discover();
  const topology::MemoryNode& beside = machine.memory_nodes.front();
  const int full = static_cast<int>(machine.nodes[beside.nearest].os_index);
  restrict_to(cpus_by_node().at(full));
  TinyOptions options = model();
  for (testing::TinyParameter& parameter : options.parameters) parameter.elems *= 3;
  const std::uint64_t digest = digest_of_one_node(options);
  fill_node(full, std::uint64_t{32} << 20);
  std::printf("  node %d has %llu MiB to give, node %u without cpus %llu\n", full,
              static_cast<unsigned long long>(free_on(full) >> 20), beside.os_index,
              static_cast<unsigned long long>(free_on(static_cast<int>(beside.os_index)) >> 20));
  const Looked looked = train_and_look_at(options);
  expect(looked.digest == digest, "the bits of one node");
  const auto there = std::ranges::count_if(looked.ledger.entries, [&](const LedgerEntry& entry) {
    return entry.memory_node == beside.os_index;
  });
  expect(there > 0, "memory without cpus is used");
}

void restrict_cpus(int node) {
  restrict_to(cpus_by_node().at(node));
}

/// A control group that has one node's cpus and memory.
void enter_cpuset(int node) {
  enter_group("one_node", "+cpuset",
              {{"cpuset.cpus", cpu_list_of(node)}, {"cpuset.mems", std::to_string(node)}});
}

void enter_memory_group(std::uint64_t bytes) {
  enter_group("little_memory", "+memory", {{"memory.max", std::to_string(bytes)}});
}

/// 14 bytes for each parameter are more than the group may have. The kernel would end the process
/// while the state is being filled.
void refused_beyond_the_group() {
  enter_memory_group(std::uint64_t{12} << 20);
  TinyTrainer trainer(model());
  try {
    trainer.start();
    expect(false, "a commit() beyond the group's memory");
  } catch (const Error& error) {
    std::printf("  %s\n", error.what());
    const std::string text = error.what();
    expect(error.code() == ErrorCode::out_of_memory, "the error is out_of_memory");
    expect(text.find("little_memory/memory.max") != std::string::npos, "its source is named");
    expect(text.find("12582912") != std::string::npos, "the limit is named");
  }
}

/// Fits, and leaves less than a tenth.
void warned_near_the_limit() {
  enter_memory_group(std::uint64_t{68} << 20);
  TinyOptions options = model();
  int warnings = 0;
  options.config.log = [&](LogLevel level, std::string_view line) {
    if (level != LogLevel::warning) return;
    std::printf("  %s\n", std::string(line).c_str());
    warnings += line.find("less than a tenth") != std::string_view::npos ? 1 : 0;
  };
  for (std::uint64_t i = 0; i < 40; ++i) options.parameters.push_back(options.parameters[1]);
  for (std::size_t i = 0; i < options.parameters.size(); ++i) {
    options.parameters[i].name = "w" + std::to_string(i);
  }
  TinyTrainer trainer(options);
  trainer.start();
  expect(warnings == 1, std::to_string(warnings) + " warnings, not one");
}

void mount_all() {
  const auto mount_one = [](const char* type, const char* where) {
    (void)mkdir(where, 0755);
    require(mount(type, where, type, 0, nullptr) == 0, std::string("mount ") + where);
  };
  mount_one("proc", "/proc");
  mount_one("sysfs", "/sys");
  mount_one("devtmpfs", "/dev");
  mount_one("tmpfs", "/dev/shm");
  mount_one("tmpfs", "/tmp");
  mount_one("cgroup2", "/sys/fs/cgroup");
  // It unmaps pages for a moment to see who comes, and moves those that nobody has bound.
  write_file("/proc/sys/kernel/numa_balancing", "0");
}

void check_this_machine() {
  mount_all();
  std::printf("\nnodes:");  // behind what the firmware left on the line
  for (const auto& [node, cpus] : cpus_by_node())
    std::printf("  %d with %zu cpus", node, cpus.size());
  std::printf("\n");
  const int last = usable_nodes().back();
  run("all of the machine", [] { train_and_look(); });
  run("one node's cpus by affinity", [&] {
    restrict_cpus(last);
    expect(usable_nodes() == Nodes{last}, "the affinity took effect");
    train_and_look();
  });
  run("one node's cpus and memory by a control group", [&] {
    enter_cpuset(last);
    expect(usable_nodes() == Nodes{last}, "the control group took effect");
    train_and_look();
  });
  run("huge pages reserved on one node", [] { reserved_huge_pages(); });
  if (!topology::discover().memory_nodes.empty()) {
    run("memory beside a full node", [] { memory_beside_a_full_node(); });
  }
  check_unlike_nodes(last);
  run("a control group with too little memory", [] { refused_beyond_the_group(); });
  run("a control group with just enough memory", [] { warned_near_the_limit(); });
}

}  // namespace
}  // namespace outboard::numa_test

int main(int count, char** arguments) {
  if (count > 1) outboard::numa_test::run_only(arguments[1]);
  try {
    outboard::numa_test::check_this_machine();
  } catch (const std::exception& error) {
    outboard::numa_test::expect(false, error.what());
  }
  std::printf("%s\n", outboard::numa_test::all_held() ? "GUEST PASSED" : "GUEST FAILED");
  std::fflush(stdout);
  if (getpid() == 1) (void)reboot(RB_POWER_OFF);
  return outboard::numa_test::all_held() ? 0 : 1;
}
