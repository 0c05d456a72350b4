// SPDX-License-Identifier: Apache-2.0
/// What the rows of the guest's table share: a model, a look at its pages and workers, and ways to
/// confine the process that trains it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/tiny_trainer.hpp"

namespace outboard::numa_test {

inline constexpr std::uint64_t kSteps = 3;

/// Prints and counts what does not hold.
void expect(bool holds, const std::string& what);
[[nodiscard]] bool all_held() noexcept;
/// @throws std::runtime_error naming the call and errno.
void require(bool holds, const std::string& call);
void write_file(const std::string& path, const std::string& text);
/// From now on only rows run that have this in their names.
void run_only(const std::string& part);
/// In a process of its own, so that what it restricts ends with it.
void run(const char* name, const std::function<void()>& body);

/// 1.2 million parameters. Its warnings are failures.
[[nodiscard]] testing::TinyOptions model();
/// 7 million parameters, of which a step has a few: arenas of several huge pages on each node.
[[nodiscard]] testing::TinyOptions large_model();
/// As a machine of one node trains it, whatever this one has. Kept for later rows of the same
/// sizes.
[[nodiscard]] std::uint64_t digest_of_one_node(testing::TinyOptions options);

/// Which real node the engine's node `index` is: the nodes with cpus that this process may use.
using Nodes = std::vector<int>;
[[nodiscard]] Nodes usable_nodes();

struct Looked {
  MemoryLedger ledger;
  std::uint64_t digest = 0;
  std::string description;
};
struct Expected {
  Nodes nodes = usable_nodes();  ///< the engine's, in its order
  bool bound = true;             ///< else what the caller's thread touches lies anywhere
  double least_share = 0.99;     ///< of an arena's pages that lie on its node
};
/// Trains, prints where each arena lies, and fails where pages or workers are elsewhere.
Looked train_and_look_at(const testing::TinyOptions& options, const Expected& expected = {});

[[nodiscard]] std::uint64_t free_on(int node);
/// Leaves about `bytes` free on a node, until this process ends.
void fill_node(int node, std::uint64_t bytes);

void restrict_to(const std::set<int>& cpus);
[[nodiscard]] std::string cpu_list_of(int node);
struct Setting {
  std::string file, text;
};
/// Enters a control group of its own, with these settings of these controllers ("+cpu +memory").
void enter_group(const std::string& name, const std::string& controllers,
                 const std::vector<Setting>& settings);

/// Rows of a machine of two nodes with several cpus; nothing on another. `last`: of its nodes.
void check_unlike_nodes(int last);

}  // namespace outboard::numa_test
