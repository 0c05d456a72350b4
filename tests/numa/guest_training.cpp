// SPDX-License-Identifier: Apache-2.0
#include "numa/guest_training.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "memory/node_room.hpp"
#include "numa/page_placement.hpp"

namespace outboard::numa_test {
namespace {

using testing::TinyOptions;
using testing::TinyTrainer;

int failures = 0;
std::string part_of_name;

int node_of(const LedgerEntry& entry, const Nodes& nodes) {
  return entry.memory_node ? static_cast<int>(*entry.memory_node) : nodes.at(entry.node);
}

void print_row(const LedgerEntry& entry, const Expected& expected,
               const std::map<int, std::size_t>& pages) {
  std::string row;
  for (const auto& [node, count] : pages) {
    const std::string where = node == kUntouched ? "nowhere" : "node " + std::to_string(node);
    row += "  " + where + ": " + std::to_string(count);
  }
  const char* kind = entry.pages == PageKind::reserved_huge      ? "reserved huge pages"
                     : entry.pages == PageKind::transparent_huge ? "transparent huge pages"
                                                                 : "small pages";
  const char* place = entry.place == MemoryPlace::host_pinned ? "pinned" : "pageable";
  std::printf("  %-28s %-8s updated on node %d, wants node %d, 4 KiB on%s (%s)\n",
              entry.purpose.c_str(), place, expected.nodes.at(entry.node),
              node_of(entry, expected.nodes), row.c_str(), kind);
}

/// Of all its pages: one that nobody has touched is nowhere.
void check_pages(const LedgerEntry& entry, const Expected& expected) {
  const auto pages = pages_by_node(entry.address, entry.bytes);
  print_row(entry, expected, pages);
  std::size_t all = 0;
  for (const auto& [node, count] : pages) all += count;
  expect(!pages.contains(kUntouched), entry.purpose + ": every page is there");
  if (!expected.bound && entry.purpose == "gate scalars") return;
  const int wanted = node_of(entry, expected.nodes);
  const std::size_t there = pages.contains(wanted) ? pages.at(wanted) : 0;
  expect(static_cast<double>(there) >= expected.least_share * static_cast<double>(all),
         entry.purpose + ": " + std::to_string(there) + " of " + std::to_string(all) +
             " pages on node " + std::to_string(wanted));
}

/// The kernel's other account of the same pages, and the policy behind them. A process that is
/// confined to one node needs none.
void check_maps(const LedgerEntry& entry, const Expected& expected) {
  const std::string wanted = ":" + std::to_string(node_of(entry, expected.nodes));
  for (const MappedRange& range : mapped_ranges(entry.address, entry.bytes)) {
    auto moved = pages_by_node(range.address, range.bytes);
    moved.erase(kUntouched);
    std::size_t pages = 0;
    for (const auto& [node, count] : range.by_node) pages += count;
    expect(moved == range.by_node, entry.purpose + ": numa_maps counts " + std::to_string(pages) +
                                       " pages otherwise than move_pages()");
    if (!expected.bound) {
      expect(range.policy == "default", entry.purpose + ": policy " + range.policy);
    } else if (expected.nodes.size() > 1 || entry.memory_node) {
      expect(range.policy.ends_with(wanted), entry.purpose + ": policy " + range.policy);
    }
  }
}

/// "threads: 2+1 threads: 4 allowed physical cores, ...": by node of the engine.
std::vector<int> stated_threads(const std::string& description) {
  const std::string key = "\nthreads: ";
  std::istringstream words(description.substr(description.find(key) + key.size()));
  std::vector<int> counts;
  char plus = '+';
  for (int count = 0; plus == '+' && words >> count; words.get(plus)) counts.push_back(count);
  return counts;
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

/// As many threads are bound to each node as the engine says it has there. On one node every
/// thread of the process is confined, not the workers only.
void check_worker_counts(std::map<int, int>& workers, const Nodes& nodes,
                         const std::string& description) {
  const std::vector<int> stated = stated_threads(description);
  expect(stated.size() == nodes.size(), std::to_string(stated.size()) + " nodes have threads");
  for (std::size_t i = 0; i < nodes.size() && i < stated.size() && nodes.size() > 1; ++i) {
    const int bound = workers[nodes[i]];
    std::printf("  %d workers on node %d\n", bound, nodes[i]);
    expect(bound == stated[i], std::to_string(bound) + " threads are bound to node " +
                                   std::to_string(nodes[i]) + ", of " + std::to_string(stated[i]));
  }
}

}  // namespace

bool all_held() noexcept {
  return failures == 0;
}

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

std::uint64_t digest_of_one_node(TinyOptions options) {
  std::string kept = "/tmp/digest";
  for (const auto& parameter : options.parameters) kept += "-" + std::to_string(parameter.elems);
  if (const std::string known = first_line(kept); !known.empty()) return std::stoull(known);
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(kSteps);
  const std::uint64_t digest = trainer.engine().state_digest();
  write_file(kept, std::to_string(digest));
  return digest;
}

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

Looked train_and_look_at(const TinyOptions& options, const Expected& expected) {
  const Nodes& nodes = expected.nodes;
  TinyTrainer trainer(options);
  trainer.start();
  std::map<int, int> workers;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    trainer.run(1);
    trainer.engine().synchronize();
    workers = check_workers(nodes);
  }
  Looked looked{trainer.engine().ledger(), trainer.engine().state_digest(),
                trainer.engine().describe()};
  for (const LedgerEntry& entry : looked.ledger.entries) {
    if (entry.place == MemoryPlace::device) continue;
    check_pages(entry, expected);
    check_maps(entry, expected);
  }
  check_worker_counts(workers, nodes, looked.description);
  return looked;
}

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

std::uint64_t free_on(int node) {
  return memory::free_bytes_of("", static_cast<std::uint32_t>(node));
}

void fill_node(int node, std::uint64_t bytes) {
  constexpr std::size_t kPiece = std::size_t{2} << 20;
  while (free_on(node) > bytes + kPiece) {
    void* piece = mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(piece != MAP_FAILED, "mmap");
    const unsigned long mask = 1UL << node;
    constexpr int kBind = 2;  // MPOL_BIND
    require(syscall(SYS_mbind, piece, kPiece, kBind, &mask, 8 * sizeof mask, 0) == 0, "mbind");
    for (std::size_t i = 0; i < kPiece; i += 4096) static_cast<volatile char*>(piece)[i] = '1';
  }
}

void restrict_to(const std::set<int>& cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &mask);
  require(sched_setaffinity(0, sizeof mask, &mask) == 0, "sched_setaffinity");
}

void enter_group(const std::string& name, const std::string& controllers,
                 const std::vector<Setting>& settings) {
  const std::string group = "/sys/fs/cgroup/" + name;
  write_file("/sys/fs/cgroup/cgroup.subtree_control", controllers);
  require(mkdir(group.c_str(), 0755) == 0 || errno == EEXIST, "mkdir " + group);
  for (const Setting& setting : settings) write_file(group + "/" + setting.file, setting.text);
  write_file(group + "/cgroup.procs", std::to_string(getpid()));
}

std::string cpu_list_of(int node) {
  return first_line("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
}

void run_only(const std::string& part) {
  part_of_name = part;
}

void run(const char* name, const std::function<void()>& body) {
  if (std::string(name).find(part_of_name) == std::string::npos) return;
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

}  // namespace outboard::numa_test
