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
#include <cstdlib>
#include <exception>
#include <map>
#include <sstream>
#include <stdexcept>
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

/// A device that is attached to the last node: what only it and the host share lies there.
void ring_beside_the_device(int node) {
  TinyOptions options = model();
  const std::uint64_t digest = digest_of_one_node(options);
  options.device.numa_node = static_cast<std::uint32_t>(node);
  options.config.pinned_slots = 4;
  options.config.log = [](LogLevel level, std::string_view line) {
    if (level == LogLevel::info) return;
    expect(line.find("Config::pinned_slots") != std::string_view::npos, std::string(line));
  };
  const Looked looked = train_and_look_at(options);
  expect(looked.digest == digest, "the bits of one node");
  for (const char* purpose : {"bounce ring", "gate scalars"}) {
    const auto there = std::ranges::count_if(looked.ledger.entries, [&](const LedgerEntry& entry) {
      return entry.purpose == purpose && entry.place != MemoryPlace::device &&
             usable_nodes().at(entry.node) == node;
    });
    expect(there == 1, std::string(purpose) + " is meant for the device's node");
  }
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

/// The number that follows `key` in `text`; 0 if there is none.
std::uint64_t number_after(const std::string& text, const std::string& key) {
  const std::size_t at = text.find(key);
  expect(at != std::string::npos, "it says \"" + key + "\"");
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + key.size(), nullptr, 10);
}

/// Parameters of 14 bytes each on the host, beside the trainer's own on the device.
TinyOptions model_of(std::uint64_t elems) {
  TinyOptions options = model();
  options.config.bucket_bytes = std::size_t{4} << 20;
  options.parameters.resize(1);
  options.parameters[0].elems = elems;
  options.device.memory_bytes = 4 * elems + (std::size_t{4} << 20);
  return options;
}

/// The kernel would end the process while the state is being filled.
void refused_beyond_the_group() {
  constexpr std::uint64_t kLimit = std::uint64_t{256} << 20;
  constexpr std::uint64_t kElems = (std::uint64_t{400} << 20) / 14;
  enter_memory_group(kLimit);
  TinyTrainer trainer(model_of(kElems));
  const auto most_used = [] {
    return std::stoull(first_line("/sys/fs/cgroup/little_memory/memory.peak")) >> 20;
  };
  const auto before = most_used();
  try {
    trainer.start();
    expect(false, "a commit() beyond the group's memory");
  } catch (const Error& error) {
    std::printf("  %s\n", error.what());
    const std::string text = error.what();
    expect(error.code() == ErrorCode::out_of_memory, "the error is out_of_memory");
    const std::uint64_t need = number_after(text, "host memory: ");
    const std::uint64_t state = number_after(text, "(state ");
    const std::uint64_t left = number_after(text, ") and ");
    const std::uint64_t used = number_after(text, "; used ");
    expect(need >= 14 * kElems && need <= 14 * kElems * 101 / 100, "the need is the model's");
    expect(state + number_after(text, ", staging ") == need, "the need is state and staging");
    expect(number_after(text, " are left of ") == kLimit, "the limit is the group's");
    expect(used > 0 && used + left == kLimit, "used and left make the limit");
    expect(number_after(text, "): ") == need - left, "it says how much is short");
    for (const char* part : {"little_memory/memory.max", "use a smaller model",
                             "Placement::fraction", "raise the limit"}) {
      expect(text.find(part) != std::string::npos, std::string("it says ") + part);
    }
  }
  expect(most_used() == before, "nothing of the state has been touched");
}

/// Fits, and leaves less than a tenth of the same group.
void warned_near_the_limit() {
  constexpr std::uint64_t kLimit = std::uint64_t{256} << 20;
  enter_memory_group(kLimit);
  // 2 more bytes for each lie on the device; a twentieth is left.
  TinyOptions options = model_of(kLimit / 100 * 94 / 16);
  int warnings = 0;
  options.config.log = [&](LogLevel level, std::string_view line) {
    if (level != LogLevel::warning) return;
    std::printf("  %s\n", std::string(line).c_str());
    warnings += line.find("less than a tenth") != std::string_view::npos ? 1 : 0;
  };
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

/// What the machine was made of, from the kernel's command line: "0:2,1:0" are two nodes, the
/// second without cpus.
std::map<int, std::size_t> made_of() {
  std::map<int, std::size_t> nodes;
  const char* given = std::getenv("guest_nodes");  // NOLINT(concurrency-mt-unsafe)
  std::istringstream entries(given == nullptr ? "" : given);
  for (std::string entry; std::getline(entries, entry, ',');) {
    nodes[std::stoi(entry)] = std::stoul(entry.substr(entry.find(':') + 1));
  }
  if (nodes.empty()) throw std::runtime_error("guest_nodes=NODE:CPUS,... is not given");
  return nodes;
}

/// What discovery misses would be left out below, and pass.
void check_discovery(const std::map<int, std::size_t>& expected) {
  std::map<int, std::size_t> kernels;
  for (const auto& [node, cpus] : cpus_by_node()) kernels[node] = cpus.size();
  expect(kernels == expected, "the kernel has the nodes and cpus of its command line");
  std::map<int, std::size_t> found;
  const topology::Machine machine = topology::discover();
  for (const topology::Node& node : machine.nodes) {
    found[static_cast<int>(node.os_index)] = node.cpus.size();
  }
  for (const topology::MemoryNode& node : machine.memory_nodes) {
    found[static_cast<int>(node.os_index)] = 0;
  }
  expect(machine.numa_known, "NUMA nodes are known");
  expect(found == expected, "discovery finds the same");
}

void check_this_machine() {
  mount_all();
  std::printf("\nnodes:");  // behind what the firmware left on the line
  for (const auto& [node, cpus] : cpus_by_node())
    std::printf("  %d with %zu cpus", node, cpus.size());
  std::printf("\n");
  const std::map<int, std::size_t> nodes = made_of();
  check_discovery(nodes);
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
  run("a device on the last node", [&] { ring_beside_the_device(last); });
  run("huge pages reserved on one node", [] { reserved_huge_pages(); });
  if (std::ranges::any_of(nodes, [](const auto& node) { return node.second == 0; })) {
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
