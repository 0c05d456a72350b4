// SPDX-License-Identifier: Apache-2.0
// Nodes of which something is forbidden, and nodes that are not alike.
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>

#include "numa/guest_training.hpp"
#include "numa/page_placement.hpp"
#include "support/refused_calls.hpp"

namespace outboard::numa_test {
namespace {

using testing::TinyOptions;
using testing::TinyTrainer;

// --- what a container forbids --------------------------------------------------------------------

/// The kernel gives a huge page of another node before it gives small ones of this.
void use_small_pages() {
  require(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0, "PR_SET_THP_DISABLE");
}

/// All cpus, and the memory of one node: no page lies on another, whoever updates it.
void memory_of_one_node(int node) {
  const std::uint64_t digest = digest_of_one_node(model());
  std::string cpus;
  for (const int each : usable_nodes()) cpus += (cpus.empty() ? "" : ",") + cpu_list_of(each);
  enter_group("one_memory", "+cpuset",
              {{"cpuset.cpus", cpus}, {"cpuset.mems", std::to_string(node)}});
  const Looked looked = train_and_look_at(model(), {.nodes = {node}});
  expect(looked.digest == digest, "the bits of one node");
}

/// A filter of the kernel's refuses the calls with which memory and threads are bound.
void refused_binding() {
  const std::uint64_t digest = digest_of_one_node(model());
  constexpr std::array<long, 4> kCalls = {SYS_set_mempolicy, SYS_mbind, SYS_move_pages,
                                          SYS_sched_setaffinity};
  require(testing::refuse_calls(kCalls, EPERM), "seccomp");
  TinyOptions options = model();
  std::vector<std::string> warnings;
  options.config.log = [&](LogLevel level, std::string_view line) {
    if (level != LogLevel::info) warnings.emplace_back(line);
  };
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(kSteps);
  expect(trainer.engine().state_digest() == digest, "the bits of one node");
  for (const std::string& line : warnings) std::printf("  %s\n", line.c_str());
  expect(warnings.size() == 1, std::to_string(warnings.size()) + " warnings, not one");
  for (const char* part : {"binding refused", "mbind", "sched_setaffinity", "errno 1"}) {
    expect(!warnings.empty() && warnings[0].find(part) != std::string::npos,
           std::string("it says ") + part);
  }
}

/// Workers stay bound, and touch what they update first.
void refused_memory_binding() {
  use_small_pages();
  TinyOptions options = model();
  const std::uint64_t digest = digest_of_one_node(options);
  constexpr std::array<long, 2> kCalls = {SYS_set_mempolicy, SYS_mbind};
  require(testing::refuse_calls(kCalls, EPERM), "seccomp");
  int warnings = 0;
  options.config.log = [&](LogLevel level, std::string_view /*line*/) {
    warnings += level == LogLevel::info ? 0 : 1;
  };
  const Looked looked = train_and_look_at(options, {.bound = false});
  expect(looked.digest == digest, "the bits of one node");
  expect(warnings == 1, std::to_string(warnings) + " warnings, not one");
}

/// A quota on all nodes, in thousandths of a core; memory has a limit too. Rounded down, at
/// least 1. Fewer cores than nodes: no nodes.
void within_a_quota(int thousandths) {
  const std::uint64_t digest = digest_of_one_node(model());
  const int cores = std::max(1, thousandths / 1000);
  enter_group("quota_" + std::to_string(thousandths), "+cpu +memory",
              {{"cpu.max", std::to_string(thousandths * 20) + " 20000"},
               {"memory.max", std::to_string(std::uint64_t{128} << 20)}});
  const bool nodes = cores >= static_cast<int>(usable_nodes().size());
  std::string text;
  if (nodes) {
    const Looked looked = train_and_look_at(model());
    expect(looked.digest == digest, "the bits of one node");
    text = looked.description;
  } else {
    TinyTrainer trainer(model());
    trainer.start();
    trainer.run(kSteps);
    expect(trainer.engine().state_digest() == digest, "the bits of one node");
    text = trainer.engine().describe();
    expect(text.find("NUMA: not used (a CPU quota of") != std::string::npos, "one node for all");
  }
  const std::size_t at = text.find("threads: ");
  std::printf("  %s\n", text.substr(at, text.find('\n', at) - at).c_str());
  expect(text.find("CPU quota " + std::to_string(cores) + " (") != std::string::npos, "its source");
  if (!nodes) expect(text.find("\nthreads: 1 thread: ") != std::string::npos, "one thread");
}

// --- nodes that are not alike --------------------------------------------------------------------

/// The shares that describe() states, by node.
std::vector<double> stated_shares(const std::string& description) {
  const std::string key = "nodes: ";
  const std::size_t at = description.find(key);
  std::vector<double> shares;
  if (at == std::string::npos) return shares;
  std::istringstream words(description.substr(at + key.size()));
  std::string plus = "+";
  for (double share = 0.0; plus == "+" && words >> share; words >> plus) shares.push_back(share);
  return shares;
}

/// What the kernel's pages say: check_pages() has found nearly all of each arena on its node.
void check_shares(const Looked& looked) {
  const std::vector<double> stated = stated_shares(looked.description);
  const std::size_t at = looked.description.find("nodes: ");
  if (at != std::string::npos) {
    const std::string rest = looked.description.substr(at);
    std::printf("  %s\n", rest.substr(0, rest.find('\n')).c_str());
  }
  std::vector<double> found(stated.size(), 0.0);
  double all = 0.0;
  for (const LedgerEntry& entry : looked.ledger.entries) {
    if (entry.place == MemoryPlace::device || entry.purpose != "exp_avg") continue;
    const auto bytes = static_cast<double>(entry.bytes);
    found.at(entry.node) += bytes;
    all += bytes;
  }
  expect(stated.size() > 1, "shares are stated");
  for (std::size_t i = 0; i < stated.size(); ++i) {
    expect(std::abs(found[i] / all - stated[i]) < 0.01,
           "node " + std::to_string(i) + " has " + std::to_string(found[i] / all) + ", stated " +
               std::to_string(stated[i]));
  }
}

/// One cpu of the first node, all of the others: threads decide in a model too small for trials.
void unequal_threads() {
  const Nodes nodes = usable_nodes();
  std::set<int> cpus;
  std::size_t threads = 0;
  for (const int node : nodes) {
    const std::set<int> its = cpus_by_node().at(node);
    if (node == nodes.front()) {
      cpus.insert(*its.begin());
    } else {
      cpus.insert(its.begin(), its.end());
    }
  }
  threads = cpus.size();
  restrict_to(cpus);
  TinyOptions options = model();
  options.config.bucket_bytes = 8192;
  for (testing::TinyParameter& parameter : options.parameters) parameter.elems /= 3;
  const std::uint64_t digest = digest_of_one_node(options);
  const Looked looked = train_and_look_at(options);
  expect(looked.digest == digest, "the bits of one node");
  check_shares(looked);
  const std::vector<double> stated = stated_shares(looked.description);
  expect(!stated.empty() && std::abs(stated[0] - 1.0 / static_cast<double>(threads)) < 0.02,
         "the first node has one thread's share of " + std::to_string(threads));
}

/// What nobody binds, as the trainer's own memory, lies on this node while it has room.
void prefer(int node) {
  const unsigned long mask = 1UL << node;
  constexpr int kPreferred = 1;  // MPOL_PREFERRED
  require(syscall(SYS_set_mempolicy, kPreferred, &mask, 8 * sizeof mask) == 0, "set_mempolicy");
}

/// The first node can give less than the share that its rate asks for: it gets less, and nothing of
/// it lies elsewhere.
void little_memory_on_one_node() {
  const std::uint64_t digest = digest_of_one_node(large_model());
  use_small_pages();
  const int full = usable_nodes().front();
  prefer(usable_nodes().back());
  fill_node(full, std::uint64_t{26} << 20);
  std::printf("  node %d has %llu MiB to give\n", full,
              static_cast<unsigned long long>(free_on(full) >> 20));
  const Looked looked = train_and_look_at(large_model(), {.least_share = 0.95});
  expect(looked.digest == digest, "the bits of one node");
  check_shares(looked);
  expect(looked.description.find("node 0: less than its rate's share") != std::string::npos,
         "it is said of the first node");
}

}  // namespace

void check_unlike_nodes(int last) {
  const Nodes nodes = usable_nodes();
  if (nodes.size() != 2 || cpus_by_node().at(nodes.front()).size() < 2) return;
  run("all cpus, one node's memory", [&] { memory_of_one_node(last); });
  run("calls that bind refused", [] { refused_binding(); });
  run("calls that bind memory refused", [] { refused_memory_binding(); });
  run("a CPU quota of 0.5", [] { within_a_quota(500); });
  run("a CPU quota of 1", [] { within_a_quota(1000); });
  run("a CPU quota of 3.5", [] { within_a_quota(3500); });
  run("unequal threads", [] { unequal_threads(); });
  run("little memory on one node", [] { little_memory_on_one_node(); });
}

}  // namespace outboard::numa_test
