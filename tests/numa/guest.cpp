// SPDX-License-Identifier: Apache-2.0
// The first process of a virtual machine with several NUMA nodes (tools/numa_check.sh): trains with
// the engine and asks the kernel where the pages of every arena lie and where the workers ran.
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "memory/state_homes.hpp"
#include "numa/page_placement.hpp"
#include "support/tiny_trainer.hpp"
#include "topology/machine.hpp"

namespace outboard::numa_test {
namespace {

using testing::TinyOptions;
using testing::TinyTrainer;

constexpr std::uint64_t kSteps = 5;
constexpr double kLeastShare = 0.99;

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::printf("  FAILED: %s\n", what.c_str());
  failures += 1;
}

void require(bool holds, const std::string& call) {
  if (!holds) throw std::runtime_error(call + ": " + std::generic_category().message(errno));
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) throw std::runtime_error("cannot write \"" + text + "\" to " + path);
}

TinyOptions model() {
  TinyOptions options;
  options.device.memory_bytes = std::size_t{24} << 20;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.bucket_bytes = std::size_t{128} << 10;
  options.config.host.reserve_cores = 0;
  options.config.log = [](LogLevel level, std::string_view line) {
    if (level == LogLevel::info) return;
    expect(false, "a warning: " + std::string(line));
  };
  for (const std::uint64_t elems : {300'000U, 70'000U, 7U, 650'000U, 120'000U, 65'536U}) {
    testing::TinyParameter parameter;
    parameter.name = "w" + std::to_string(options.parameters.size());
    parameter.elems = elems;
    options.parameters.push_back(parameter);
  }
  options.digest = false;
  return options;
}

/// As a machine of one node trains it, whatever this one has.
std::uint64_t digest_of_one_node(TinyOptions options) {
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(kSteps);
  return trainer.engine().state_digest();
}

/// Which real node the engine's node `index` is: the nodes with cpus that this process may use.
using Nodes = std::vector<int>;
Nodes usable_nodes() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  require(sched_getaffinity(0, sizeof mask, &mask) == 0, "sched_getaffinity");
  Nodes out;
  for (const auto& [node, cpus] : cpus_by_node()) {
    const auto mine = [&](int cpu) { return CPU_ISSET(static_cast<std::size_t>(cpu), &mask); };
    if (std::ranges::any_of(cpus, mine)) out.push_back(node);
  }
  return out;
}

void check_pages(const LedgerEntry& entry, const Nodes& nodes) {
  const auto pages = pages_by_node(entry.address, entry.bytes);
  std::size_t all = 0;
  std::string row;
  for (const auto& [node, count] : pages) {
    if (node == kUntouched) continue;
    all += count;
    row += "  node " + std::to_string(node) + ": " + std::to_string(count);
  }
  const int wanted =
      entry.memory_node ? static_cast<int>(*entry.memory_node) : nodes.at(entry.node);
  const std::size_t there = pages.contains(wanted) ? pages.at(wanted) : 0;
  const char* kind = entry.pages == PageKind::reserved_huge      ? "reserved huge pages"
                     : entry.pages == PageKind::transparent_huge ? "transparent huge pages"
                                                                 : "small pages";
  const char* place = entry.place == MemoryPlace::host_pinned ? "pinned" : "pageable";
  std::printf("  %-28s %-8s updated on node %d, wants node %d, 4 KiB on%s (%s)\n",
              entry.purpose.c_str(), place, nodes.at(entry.node), wanted, row.c_str(), kind);
  expect(all > 0, entry.purpose + " is touched");
  expect(static_cast<double>(there) >= kLeastShare * static_cast<double>(all),
         entry.purpose + ": " + std::to_string(there) + " of " + std::to_string(all) +
             " pages on node " + std::to_string(wanted));
}

/// Threads that may run on one node's cpus only are its workers; returns how many there are.
std::map<int, int> check_workers(const Nodes& nodes) {
  const auto cpus = cpus_by_node();
  std::map<int, int> workers;
  for (const ThreadPlace& thread : other_threads()) {
    for (const int node : nodes) {
      if (!std::ranges::includes(cpus.at(node), thread.allowed)) continue;
      workers[node] += 1;
      expect(cpus.at(node).contains(thread.cpu), "worker " + std::to_string(thread.id) +
                                                     " of node " + std::to_string(node) +
                                                     " ran on cpu " + std::to_string(thread.cpu));
    }
  }
  return workers;
}

/// Where it has a digest to compare with.
struct Looked {
  MemoryLedger ledger;
  std::uint64_t digest = 0;
};
Looked train_and_look_at(const TinyOptions& options) {
  const Nodes nodes = usable_nodes();
  TinyTrainer trainer(options);
  trainer.start();
  std::map<int, int> workers;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    trainer.run(1);
    trainer.engine().synchronize();
    workers = check_workers(nodes);
  }
  Looked looked{trainer.engine().ledger(), trainer.engine().state_digest()};
  for (const LedgerEntry& entry : looked.ledger.entries) {
    if (entry.place != MemoryPlace::device) check_pages(entry, nodes);
  }
  for (const int node : nodes) {
    if (nodes.size() == 1) break;  // every thread is confined to it, not the workers only
    std::printf("  %d workers on node %d\n", workers[node], node);
    expect(workers[node] > 0, "node " + std::to_string(node) + " has workers of its own");
  }
  return looked;
}

/// Trains on what this process may use, and looks after each step.
void train_and_look() {
  const std::uint64_t digest = digest_of_one_node(model());
  expect(train_and_look_at(model()).digest == digest, "the bits of one node");
}

// --- more than small arenas ----------------------------------------------------------------------

/// 7 million parameters, of which a step has a few: arenas of several huge pages on each node.
TinyOptions large_model() {
  TinyOptions options = model();
  options.device.memory_bytes = std::size_t{40} << 20;
  options.config.bucket_bytes = std::size_t{512} << 10;
  for (testing::TinyParameter& parameter : options.parameters) parameter.elems *= 6;
  options.has_gradient = [](std::uint64_t step, std::uint32_t parameter) {
    return (step + parameter) % 3 == 0;
  };
  return options;
}

std::string huge_pages_of(int node) {
  return "/sys/devices/system/node/node" + std::to_string(node) + "/hugepages/hugepages-2048kB/";
}

/// Pages of 2 MiB that an administrator has set aside on one node take its arenas and slots; the
/// other nodes' lie in others.
void reserved_huge_pages() {
  const std::uint64_t digest = digest_of_one_node(large_model());
  const Nodes nodes = usable_nodes();
  const int last = nodes.back();
  write_file(huge_pages_of(last) + "nr_hugepages", "32");
  const int free_before = std::stoi(first_line(huge_pages_of(last) + "free_hugepages"));
  expect(free_before == 32, std::to_string(free_before) + " huge pages reserved, not 32");
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
  std::printf("  %zu of 32 reserved huge pages of node %d taken\n", reserved, last);
  expect(reserved >= 4, "reserved huge pages are used");
  const int free_after = std::stoi(first_line(huge_pages_of(last) + "free_hugepages"));
  expect(free_after == 32, "all of them come back");
  write_file(huge_pages_of(last) + "nr_hugepages", "0");
}

std::uint64_t free_on(int node) {
  return memory::free_bytes_of("", static_cast<std::uint32_t>(node));
}

/// Leaves about `bytes` free on a node, until this process ends.
void fill_node(int node, std::uint64_t bytes) {
  constexpr std::size_t kPiece = std::size_t{2} << 20;
  while (free_on(node) > bytes + kPiece) {
    void* piece = mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(piece != MAP_FAILED, "mmap");
    const unsigned long mask = 1UL << node;
    constexpr int kBind = 2;  // MPOL_BIND
    require(syscall(SYS_mbind, piece, kPiece, kBind, &mask, 8 * sizeof mask, 0) == 0, "mbind");
    std::fill_n(static_cast<volatile char*>(piece), kPiece, '1');
  }
}

/// What a node with cpus has no room for goes to memory beside it, and is updated by its cores.
void memory_beside_a_full_node() {
  const std::uint64_t digest = digest_of_one_node(large_model());
  const topology::Machine machine = topology::discover();
  const topology::MemoryNode& beside = machine.memory_nodes.front();
  const int full = static_cast<int>(machine.nodes[beside.nearest].os_index);
  fill_node(full, std::uint64_t{26} << 20);
  std::printf("  node %d has %llu MiB to give, node %u without cpus %llu\n", full,
              static_cast<unsigned long long>(free_on(full) >> 20), beside.os_index,
              static_cast<unsigned long long>(free_on(static_cast<int>(beside.os_index)) >> 20));
  const Looked looked = train_and_look_at(large_model());
  expect(looked.digest == digest, "the bits of one node");
  const auto there = std::ranges::count_if(looked.ledger.entries, [&](const LedgerEntry& entry) {
    return entry.memory_node == beside.os_index;
  });
  expect(there > 0, "memory without cpus is used");
}

void restrict_cpus(int node) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const auto cpus = cpus_by_node();
  for (const int cpu : cpus.at(node)) CPU_SET(static_cast<std::size_t>(cpu), &mask);
  require(sched_setaffinity(0, sizeof mask, &mask) == 0, "sched_setaffinity");
}

/// A control group that has one node's cpus and memory.
void enter_cpuset(int node) {
  const std::string group = "/sys/fs/cgroup/one_node";
  write_file("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
  require(mkdir(group.c_str(), 0755) == 0 || errno == EEXIST, "mkdir " + group);
  const std::string cpus =
      first_line("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
  write_file(group + "/cpuset.cpus", cpus);
  write_file(group + "/cpuset.mems", std::to_string(node));
  write_file(group + "/cgroup.procs", std::to_string(getpid()));
}

void enter_memory_group(std::uint64_t bytes) {
  const std::string group = "/sys/fs/cgroup/little_memory";
  write_file("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
  require(mkdir(group.c_str(), 0755) == 0 || errno == EEXIST, "mkdir " + group);
  write_file(group + "/memory.max", std::to_string(bytes));
  write_file(group + "/cgroup.procs", std::to_string(getpid()));
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

/// In a process of its own, so that what it restricts ends with it.
void run(const char* name, const std::function<void()>& body) {
  std::printf("%s\n", name);
  std::fflush(stdout);
  const pid_t child = fork();
  require(child >= 0, "fork");
  if (child == 0) {
    failures = 0;
    try {
      body();
    } catch (const std::exception& error) {
      expect(false, error.what());
    }
    std::fflush(stdout);
    _exit(failures == 0 ? 0 : 1);
  }
  int status = 0;
  require(waitpid(child, &status, 0) == child, "waitpid");
  expect(!WIFSIGNALED(status), "signal " + std::to_string(WTERMSIG(status)));
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, name);
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
  run("a control group with too little memory", [] { refused_beyond_the_group(); });
  run("a control group with just enough memory", [] { warned_near_the_limit(); });
}

}  // namespace
}  // namespace outboard::numa_test

int main() {
  try {
    outboard::numa_test::check_this_machine();
  } catch (const std::exception& error) {
    outboard::numa_test::expect(false, error.what());
  }
  std::printf("%s\n", outboard::numa_test::failures == 0 ? "GUEST PASSED" : "GUEST FAILED");
  std::fflush(stdout);
  if (getpid() == 1) (void)reboot(RB_POWER_OFF);
  return outboard::numa_test::failures == 0 ? 0 : 1;
}
