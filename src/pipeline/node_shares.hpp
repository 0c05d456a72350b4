// SPDX-License-Identifier: Apache-2.0
/// How many of the buckets each NUMA node gets.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "pipeline/flow.hpp"
#include "plan/placement.hpp"

namespace outboard::pipeline {

/// Decides by rates: in virtual time those of the nodes, in real time measured ones, of a machine
/// with several nodes and a model large enough to tell. Rates for each thread that differ by less
/// than a tenth are noise, and then, as for made-up machines, the number of threads decides.
class NodeShares {
 public:
  explicit NodeShares(Flow& flow) : flow_(flow) {}

  /// Once, for a model of so many elements on the host. May measure: nothing else may be running.
  /// Waits.
  void decide(std::unique_lock<std::mutex>& lock, const topology::Machine& machine,
              std::uint64_t elems);
  /// One for each node, after decide().
  [[nodiscard]] const std::vector<double>& rates() const noexcept { return rates_; }
  /// Deals buckets out again where a node's memory is too small for its share. `state_bytes`: of
  /// one element, with its sum.
  void fit(const topology::Machine& machine, plan::PlacedModel& placed, std::uint64_t state_bytes);
  /// By node, which had too little memory for its share, to go back to when a commit() fails.
  using Limits = std::vector<bool>;
  [[nodiscard]] const Limits& limits() const noexcept { return limited_; }
  void go_back(Limits& limits) noexcept { limited_.swap(limits); }
  /// "" for one node; else a line for all, and one for each node that is short of memory.
  [[nodiscard]] std::string describe() const;

 private:
  Flow& flow_;
  std::vector<double> rates_;
  std::string source_;
  Limits limited_;  // by the last commit() that had state for the host
};

}  // namespace outboard::pipeline
