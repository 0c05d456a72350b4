// SPDX-License-Identifier: Apache-2.0
#include "pipeline/node_shares.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/show_number.hpp"
#include "memory/node_room.hpp"
#include "pipeline/node_rates.hpp"
#include "plan/node_shares.hpp"

namespace outboard::pipeline {
namespace {

/// Rates of equal nodes differ by a few percent from trial to trial.
constexpr double kNoise = 1.1;
/// Below this a trial runs in the caches, and no share matters.
constexpr std::uint64_t kLeastElemsPerNode = std::uint64_t{256} << 10;

bool alike(const std::vector<double>& rates, const exec::Executor& executor) {
  double least = 0.0;
  double most = 0.0;
  for (std::uint32_t node = 0; node < rates.size(); ++node) {
    const double each = rates[node] / executor.threads(node);
    least = node == 0 ? each : std::min(least, each);
    most = std::max(most, each);
  }
  return most <= kNoise * least;
}

bool all_known(const std::vector<double>& rates) {
  return std::ranges::all_of(rates, [](double rate) { return rate > 0.0; });
}

/// With three digits. A quotient of whole numbers is the double nearest to them; a product is not.
double rounded(double value) {
  if (value <= 0.0) return value;
  const double places = 2.0 - std::floor(std::log10(value));
  const double unit = std::pow(10.0, std::abs(places));
  return places > 0.0 ? std::round(value * unit) / unit : std::round(value / unit) * unit;
}

std::string join(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) {
    text += (text.empty() ? "" : " + ") + core::show_number(rounded(value));
  }
  return text;
}

}  // namespace

void NodeShares::decide(std::unique_lock<std::mutex>& lock, const topology::Machine& machine,
                        std::uint64_t elems) {
  const std::uint32_t nodes = flow_.executor.nodes();
  std::vector<double> threads;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    threads.push_back(flow_.executor.threads(node));
  }
  std::vector<double> found;
  source_ = "by threads";
  if (nodes > 1 && flow_.backend.virtual_loop() != nullptr) {
    for (std::uint32_t node = 0; node < nodes; ++node) {
      found.push_back(flow_.backend.host_elems_per_s(node));
    }
    source_ = "by update rates of the virtual clock";
  } else if (nodes > 1 && machine.real && elems / nodes >= kLeastElemsPerNode) {
    // Half of what the state is going to take.
    found = measure_node_rates(lock, flow_, machine, elems / nodes / 2);
    source_ = "by measured update rates";
  }
  if (found.empty() || !all_known(found)) {
    source_ = "by threads";
    rates_ = std::move(threads);
  } else if (machine.real && alike(found, flow_.executor)) {
    source_ = "by threads, whose measured update rates are alike";
    rates_ = std::move(threads);
  } else {
    std::vector<double> millions;
    millions.reserve(found.size());
    for (const double rate : found) millions.push_back(rate * 1e-6);
    source_ += ", " + join(millions) + " million elements/s";
    rates_ = std::move(found);
  }
}

void NodeShares::fit(const topology::Machine& machine, plan::PlacedModel& placed,
                     std::uint64_t state_bytes) {
  if (rates_.size() < 2) return;
  plan::ShareDemand demand;
  std::uint64_t slot_bytes = 0;
  for (std::size_t i = 0; i < placed.layout.buckets.size(); ++i) {
    if (!placed.host_room[i]) continue;
    const plan::Bucket& bucket = placed.layout.buckets[i];
    demand.elems += bucket.padded_elems;
    demand.largest_bucket_elems = std::max(demand.largest_bucket_elems, bucket.padded_elems);
    slot_bytes += bucket.slot_bytes();
  }
  if (demand.elems == 0) return;
  const std::uint64_t elem_bytes = state_bytes + (slot_bytes + demand.elems - 1) / demand.elems;
  std::vector<std::uint64_t> room = memory::read_node_room(machine, "");
  for (std::uint64_t& each : room) {
    if (each != memory::kUnknownRoom) each /= elem_bytes;
  }
  plan::NodeShares shares = plan::node_shares(rates_, room, demand);
  limited_ = std::move(shares.limited);
  if (std::ranges::find(limited_, true) == limited_.end()) return;
  plan::assign_nodes(placed.layout, shares.weights, placed.host_room);
}

std::string NodeShares::describe() const {
  if (rates_.size() < 2) return "";
  const std::vector<std::uint64_t>& given = flow_.layout.node_elems;
  const auto all = static_cast<double>(std::accumulate(given.begin(), given.end(), 0ULL));
  if (all == 0.0) return "";
  std::vector<double> shares;
  shares.reserve(given.size());
  for (const std::uint64_t elems : given) shares.push_back(static_cast<double>(elems) / all);
  std::string text = "nodes: " + join(shares) + " of the host's state, " + source_ + "\n";
  for (std::size_t node = 0; node < limited_.size(); ++node) {
    if (!limited_[node]) continue;
    text += "node " + std::to_string(node) + ": less than its rate's share of the state, for its " +
            "memory has no more room; the others take the rest\n";
  }
  return text;
}

}  // namespace outboard::pipeline
