// SPDX-License-Identifier: Apache-2.0
#include "plan/node_shares.hpp"

#include <numeric>
#include <string>

#include "outboard/error.hpp"

namespace outboard::plan {
namespace {

/// Elements that may be planned for a node so that a bucket more still fits.
std::uint64_t usable(std::uint64_t room, const ShareDemand& demand) {
  if (room == UINT64_MAX) return room;
  return room > demand.largest_bucket_elems ? room - demand.largest_bucket_elems : 0;
}

}  // namespace

NodeShares node_shares(std::span<const double> rates, std::span<const std::uint64_t> room_elems,
                       const ShareDemand& demand) {
  if (rates.size() != room_elems.size()) {
    throw Error(ErrorCode::invalid_argument, "node_shares(): " + std::to_string(room_elems.size()) +
                                                 " rooms for " + std::to_string(rates.size()) +
                                                 " nodes; give one for each");
  }
  NodeShares shares{{rates.begin(), rates.end()}, std::vector<bool>(rates.size(), false)};
  auto rest = static_cast<double>(demand.elems);
  double rest_rate = std::accumulate(rates.begin(), rates.end(), 0.0);
  for (bool changed = true; changed;) {  // a full node raises the shares of the others
    changed = false;
    for (std::size_t node = 0; node < rates.size(); ++node) {
      const auto room = static_cast<double>(usable(room_elems[node], demand));
      if (shares.limited[node] || rest * rates[node] <= room * rest_rate) continue;
      shares.limited[node] = changed = true;
      shares.weights[node] = room;
      rest -= room;
      rest_rate -= rates[node];
      break;
    }
  }
  bool all_full = true;
  for (std::size_t node = 0; node < rates.size(); ++node) {
    if (shares.limited[node]) continue;
    all_full = false;
    shares.weights[node] = rest * rates[node] / rest_rate;
  }
  if (all_full || demand.elems == 0)
    return {{rates.begin(), rates.end()}, std::vector<bool>(rates.size(), false)};
  return shares;
}

}  // namespace outboard::plan
