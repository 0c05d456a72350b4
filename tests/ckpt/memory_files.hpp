// SPDX-License-Identifier: Apache-2.0
/// A file system in memory that forgets as the worst of real ones may: what was not synced is lost,
/// kept or torn, each by itself. It also fails, is interrupted and does less than asked on demand.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ckpt/file_system.hpp"

namespace outboard::testing {

using Bytes = std::vector<std::byte>;

class MemoryFiles final : public ckpt::FileSystem {
 public:
  MemoryFiles() { nodes_[kRoot].is_folder = true; }

  // --- what tests ask for ----------------------------------------------------------------------
  /// Calls that change something or sync, so far.
  [[nodiscard]] std::size_t changes() const { return changes_; }
  /// The call of this number (counted as changes()) does half of what it was to write, and from
  /// there on nothing happens any more.
  void stop_at(std::size_t change) { stop_ = change; }
  /// The call of this number fails once, having done half of what it was to write.
  void fail_at(std::size_t change, int error) {
    fail_at_ = change;
    fail_error_ = error;
  }
  /// Every other call is interrupted, and no call reads or writes more than `most` bytes.
  void hinder(std::size_t most) {
    interrupts_ = true;
    most_bytes_ = most;
  }
  std::int64_t room = INT64_MAX;          ///< what free_bytes() says
  std::int64_t largest_file = INT64_MAX;  ///< what largest_file_bytes() says

  enum class Lost : std::uint8_t { all, none, some };
  /// What is there after the power has gone: `lost` of what was not synced.
  [[nodiscard]] std::unique_ptr<MemoryFiles> after_power_loss(Lost lost, std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    const auto keeps = [&] {
      return lost == Lost::none || (lost == Lost::some && random() % 2 == 0);
    };
    auto after = std::make_unique<MemoryFiles>();
    after->nodes_ = nodes_;
    after->next_node_ = next_node_;
    for (auto& [id, node] : after->nodes_) node.entries = node.durable_entries;
    for (const Change& change : pending_) {
      if (keeps()) change.apply(after->nodes_, &Node::entries);
    }
    for (auto& [id, node] : after->nodes_) {
      if (node.synced || lost == Lost::none) continue;
      node.data = torn(node, lost, random);
    }
    for (auto& [id, node] : after->nodes_) {
      node.durable_entries = node.entries;
      node.durable_data = node.data;
      node.synced = true;
    }
    return after;
  }
  /// Every file below a folder, by path.
  [[nodiscard]] std::map<std::string, Bytes> all_files(const std::string& folder) const {
    std::map<std::string, Bytes> found;
    for (const auto& [name, id] : nodes_.at(find(folder)).entries) {
      const std::string path = folder + "/" + name;
      const Node& node = nodes_.at(id);
      if (node.is_folder) {
        found.merge(all_files(path));
      } else {
        found[path] = node.data;
      }
    }
    return found;
  }
  [[nodiscard]] std::set<std::string> names(const std::string& folder) const {
    std::set<std::string> found;
    for (const auto& entry : nodes_.at(find(folder)).entries) found.insert(entry.first);
    return found;
  }
  [[nodiscard]] Bytes& data(const std::string& path) { return nodes_.at(find(path)).data; }
  void put(const std::string& path, Bytes bytes) {
    const int id = add(path, false);
    nodes_[id].data = nodes_[id].durable_data = std::move(bytes);
    nodes_[id].synced = true;
  }

  // --- FileSystem ------------------------------------------------------------------------------
  ckpt::CallResult create(const std::string& path) override {
    return change([&]() -> ckpt::CallResult {
      if (find(path) >= 0) return {-1, EEXIST};
      if (find(parent(path)) < 0) return {-1, ENOENT};
      return handle_of(add(path, false));
    });
  }
  ckpt::CallResult open(const std::string& path) override {
    return look([&]() -> ckpt::CallResult {
      const int id = find(path);
      return id < 0 ? ckpt::CallResult{-1, ENOENT} : handle_of(id);
    });
  }
  ckpt::CallResult write(int handle, std::span<const std::byte> bytes) override {
    const auto write_some = [&](std::size_t count) {
      Node& node = nodes_[handles_[handle]];
      const auto piece = bytes.first(std::min(count, bytes.size()));
      node.data.insert(node.data.end(), piece.begin(), piece.end());
      node.synced = false;
      return ckpt::CallResult{static_cast<std::int64_t>(piece.size()), 0};
    };
    return change([&] { return write_some(most_bytes_); }, [&] { write_some(bytes.size() / 2); });
  }
  ckpt::CallResult read(int handle, std::span<std::byte> bytes, std::uint64_t offset) override {
    return look([&]() -> ckpt::CallResult {
      const Bytes& data = nodes_[handles_[handle]].data;
      if (offset >= data.size()) return {0, 0};
      const std::size_t count = std::min({bytes.size(), data.size() - offset, most_bytes_});
      std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(offset), count, bytes.begin());
      return {static_cast<std::int64_t>(count), 0};
    });
  }
  ckpt::CallResult size(int handle) override {
    return look([&]() -> ckpt::CallResult {
      const Node& node = nodes_[handles_[handle]];
      if (node.is_folder) return {-1, EISDIR};
      return {static_cast<std::int64_t>(node.data.size()), 0};
    });
  }
  ckpt::CallResult sync(int handle) override {
    return change([&]() -> ckpt::CallResult {
      const int id = handles_[handle];
      nodes_[id].durable_data = nodes_[id].data;
      nodes_[id].synced = true;
      std::erase_if(pending_, [&](const Change& pending) {
        if (pending.folder != id) return false;
        pending.apply(nodes_, &Node::durable_entries);
        return true;
      });
      return {0, 0};
    });
  }
  ckpt::CallResult lock(int handle) override {
    return look([&]() -> ckpt::CallResult {
      const int id = handles_[handle];
      for (const auto& [other, locked] : locks_) {
        if (locked == id && other != handle) return {-1, EWOULDBLOCK};
      }
      locks_[handle] = id;
      return {0, 0};
    });
  }
  ckpt::CallResult close(int handle) override {
    const std::lock_guard guard(mutex_);
    handles_.erase(handle);
    locks_.erase(handle);
    return {0, 0};
  }
  ckpt::CallResult make_folder(const std::string& path) override {
    return change([&]() -> ckpt::CallResult {
      if (find(path) >= 0) return {-1, EEXIST};
      if (find(parent(path)) < 0) return {-1, ENOENT};
      add(path, true);
      return {0, 0};
    });
  }
  ckpt::CallResult rename(const std::string& from, const std::string& to) override {
    return change([&]() -> ckpt::CallResult {
      const int folder = find(parent(from));
      if (find(from) < 0) return {-1, ENOENT};
      if (find(to) >= 0) return {-1, ENOTEMPTY};
      note({folder, last(from), last(to), find(from)});
      return {0, 0};
    });
  }
  ckpt::CallResult remove_file(const std::string& path) override { return remove(path, false); }
  ckpt::CallResult remove_folder(const std::string& path) override { return remove(path, true); }
  ckpt::CallResult list(const std::string& path, std::vector<std::string>& names) override {
    return look([&]() -> ckpt::CallResult {
      const int id = find(path);
      if (id < 0) return {-1, ENOENT};
      if (!nodes_[id].is_folder) return {-1, ENOTDIR};
      names.clear();
      for (const auto& entry : nodes_[id].entries) names.push_back(entry.first);
      return {0, 0};
    });
  }
  ckpt::CallResult free_bytes(const std::string& path) override {
    return look([&]() -> ckpt::CallResult {
      return find(path) < 0 ? ckpt::CallResult{-1, ENOENT} : ckpt::CallResult{room, 0};
    });
  }
  ckpt::CallResult largest_file_bytes() override { return {largest_file, 0}; }

 private:
  static constexpr int kRoot = 0;
  static constexpr std::size_t kNever = SIZE_MAX;
  using Entries = std::map<std::string, int>;
  struct Node {
    bool is_folder = false;
    bool synced = false;
    Bytes data, durable_data;
    Entries entries, durable_entries;
  };
  /// In one folder: a name goes ("" none), another comes for the node ("" none). Atomic.
  struct Change {
    int folder = 0;
    std::string gone, come;
    int node = 0;

    void apply(std::map<int, Node>& nodes, Entries Node::*which) const {
      Entries& entries = nodes[folder].*which;
      // Without its first half, a rename whose making was lost has nothing to rename.
      if (!gone.empty() && entries.erase(gone) == 0) return;
      if (!come.empty()) entries[come] = node;
    }
  };

  static std::string parent(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == 0 ? "/" : path.substr(0, slash);
  }
  static std::string last(const std::string& path) { return path.substr(path.rfind('/') + 1); }
  [[nodiscard]] int find(const std::string& path) const {
    int id = kRoot;
    std::size_t begin = 1;
    while (begin < path.size()) {
      const std::size_t end = std::min(path.find('/', begin), path.size());
      const Entries& entries = nodes_.at(id).entries;
      const auto found = entries.find(path.substr(begin, end - begin));
      if (found == entries.end()) return -1;
      id = found->second;
      begin = end + 1;
    }
    return id;
  }
  int add(const std::string& path, bool is_folder) {
    const int id = next_node_++;
    nodes_[id].is_folder = is_folder;
    note({find(parent(path)), "", last(path), id});
    return id;
  }
  void note(const Change& change) {
    change.apply(nodes_, &Node::entries);
    pending_.push_back(change);
  }
  ckpt::CallResult handle_of(int id) {
    handles_[next_handle_] = id;
    return {next_handle_++, 0};
  }
  ckpt::CallResult remove(const std::string& path, bool folder) {
    return change([&]() -> ckpt::CallResult {
      const int id = find(path);
      if (id < 0) return {-1, ENOENT};
      if (nodes_[id].is_folder != folder) return {-1, folder ? ENOTDIR : EISDIR};
      if (!nodes_[id].entries.empty()) return {-1, ENOTEMPTY};
      note({find(parent(path)), last(path), "", id});
      return {0, 0};
    });
  }
  /// What a file that was not synced holds afterwards: of any length up to the written one, and
  /// behind what was synced blocks that came through, that are zero or that are anything.
  static Bytes torn(const Node& node, Lost lost, std::mt19937_64& random) {
    if (lost == Lost::all) return node.durable_data;
    Bytes data = node.data;
    data.resize(node.durable_data.size() +
                random() % (node.data.size() - node.durable_data.size() + 1));
    for (std::size_t block = node.durable_data.size(); block < data.size(); block += 512) {
      const std::uint64_t fate = random() % 3;
      for (std::size_t i = block; i < std::min(block + 512, data.size()) && fate > 0; ++i) {
        data[i] = fate == 1 ? std::byte{0} : static_cast<std::byte>(random());
      }
    }
    return data;
  }

  template <class Call>
  ckpt::CallResult look(Call call) {
    const std::lock_guard guard(mutex_);
    if (changes_ > stop_) return {-1, EIO};
    if (interrupted()) return {-1, EINTR};
    return call();
  }
  bool interrupted() { return interrupts_ && (++calls_ % 2 == 1); }
  template <class Call>
  ckpt::CallResult change(Call call, const std::function<void()>& half = {}) {
    const std::lock_guard guard(mutex_);
    if (changes_ > stop_) return {-1, EIO};
    if (interrupted()) return {-1, EINTR};
    const std::size_t number = changes_++;
    if (number == fail_at_ || number == stop_) {
      if (half) half();
      return {-1, number == fail_at_ ? fail_error_ : EIO};
    }
    return call();
  }

  std::mutex mutex_;
  std::map<int, Node> nodes_;
  std::vector<Change> pending_;  // of folders, since their last sync
  std::map<int, int> handles_, locks_;
  int next_node_ = 1, next_handle_ = 1;
  std::size_t changes_ = 0, calls_ = 0;
  std::size_t stop_ = kNever, fail_at_ = kNever;
  int fail_error_ = 0;
  bool interrupts_ = false;
  std::size_t most_bytes_ = SIZE_MAX;
};

}  // namespace outboard::testing
