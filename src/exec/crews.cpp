// SPDX-License-Identifier: Apache-2.0
#include "exec/crews.hpp"

#include <future>
#include <optional>
#include <system_error>

#include "outboard/error.hpp"

namespace outboard::exec {

void check_thread_counts(std::size_t nodes, const std::vector<std::uint32_t>& threads_per_node) {
  if (threads_per_node.size() != nodes || nodes == 0) {
    throw Error(ErrorCode::invalid_argument,
                "executor: " + std::to_string(threads_per_node.size()) + " thread counts for " +
                    std::to_string(nodes) + " nodes; give one for each node");
  }
  for (std::size_t node = 0; node < nodes; ++node) {
    if (threads_per_node[node] > 0) continue;
    throw Error(
        ErrorCode::invalid_argument,
        "executor: 0 threads for node " + std::to_string(node) + "; every node needs at least 1");
  }
}

namespace {

Error refused_thread(std::size_t number, const std::system_error& error) {
  return {ErrorCode::out_of_memory,
          "executor: thread " + std::to_string(number) + " could not start: " + error.what() +
              "; use fewer threads or raise the limit (ulimit -u, ulimit -v, container pids)"};
}

}  // namespace

void require_startable(std::size_t threads) {
  std::vector<std::thread> started;
  started.reserve(threads);
  std::promise<void> all;
  const std::shared_future<void> go = all.get_future().share();
  std::optional<std::system_error> refused;
  try {
    while (started.size() < threads) started.emplace_back([go] { go.wait(); });
  } catch (const std::system_error& error) {
    refused = error;
  }
  all.set_value();
  for (std::thread& thread : started) thread.join();
  if (refused) throw refused_thread(started.size() + 1, *refused);
}

CrewExecutor::CrewExecutor(const topology::Machine& machine,
                           const std::vector<std::uint32_t>& threads_per_node) {
  check_thread_counts(machine.nodes.size(), threads_per_node);
  for (std::uint32_t node = 0; node < threads_per_node.size(); ++node) {
    crews_.push_back(std::make_shared<NodeCrew>(machine, node, threads_per_node[node]));
  }
}

void CrewExecutor::reserve(std::size_t tasks) {
  for (const auto& crew : crews_) crew->reserve(tasks);
}

void CrewExecutor::record_to(core::SpanRecorder& recorder) {
  for (const auto& crew : crews_) crew->record_to(recorder);
}

std::uint32_t CrewExecutor::threads(std::uint32_t node) const noexcept {
  return crews_[node]->workers();
}

std::uint32_t CrewExecutor::nodes() const noexcept {
  return static_cast<std::uint32_t>(crews_.size());
}

std::int64_t CrewExecutor::busy_ns(std::uint32_t node) const noexcept {
  return crews_[node]->busy_ns();
}

std::string CrewExecutor::binding_note() const {
  std::string nodes;
  std::string why;
  for (std::size_t node = 0; node < crews_.size(); ++node) {
    const std::string note = crews_[node]->binding_note();
    if (note.empty()) continue;
    nodes += (nodes.empty() ? "node " : ", ") + std::to_string(node);
    if (why.empty()) why = note;
  }
  return nodes.empty() ? "" : nodes + ": " + why;
}

void CrewExecutor::start_thread(NodeCrew& crew) {
  try {
    threads_.emplace_back([&crew] { crew.work(); });
  } catch (const std::system_error& error) {
    throw refused_thread(threads_.size() + 1, error);
  }
}

std::uint32_t CrewExecutor::fill_crews(double patience_seconds) {
  for (const auto& crew : crews_) {
    const std::uint32_t came = crew->wait_for_workers(patience_seconds);
    for (std::uint32_t i = came; i < crew->workers(); ++i) start_thread(*crew);
    if (came < crew->workers()) patience_seconds = 0.0;  // nobody else is on the way either
  }
  for (const auto& crew : crews_) crew->wait_for_workers();
  return static_cast<std::uint32_t>(threads_.size());
}

void CrewExecutor::stop() noexcept {
  for (const auto& crew : crews_) crew->stop();
}

void CrewExecutor::join() noexcept {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace outboard::exec
