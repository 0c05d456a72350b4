// SPDX-License-Identifier: Apache-2.0
/// One measurement of the update kernel against the memory's own rate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "update_bench/check.hpp"
#include "update_bench/crew.hpp"
#include "update_bench/memory_use.hpp"
#include "update_bench/series.hpp"
#include "update_bench/workload.hpp"

namespace outboard::update_bench {

/// Nanoseconds per parameter, one value for each repeat; a series not asked for is empty.
struct Measurement {
  Workload workload;
  std::uint64_t params = 0;      ///< of all tensors together
  double bytes_per_param = 0.0;  ///< counted
  std::uint32_t passes = 0;      ///< steps in one timed repeat: more where one is short
  std::vector<double> update;
  std::vector<double> roof;        ///< kRoofBytes, same memory, same threads, taken in turns
  std::vector<double> triad;       ///< kTriadBytes, before the others
  std::vector<double> one_tensor;  ///< the same parameters in one tensor
  std::vector<double> normal;      ///< one step on data written anew, as `subnormal` is measured
  std::vector<double> subnormal;
  CheckResult check;
  PageUse pages;
  std::string notes;         ///< what is not as asked for, one line each
  double load_before = 0.0;  ///< load average, see load_average()
  double load_after = 0.0;

  /// Of the roof's rate in the same repeat; 1 means nothing but memory limits the update.
  [[nodiscard]] std::vector<double> share_of_roof() const;
};

/// Allocates, fills, checks, and takes roof and update in turns, `repeats` times.
/// @throws Error{invalid_argument, invalid_config} as validate() does, Error{out_of_memory} saying
/// by how much if it does not fit into free memory.
[[nodiscard]] Measurement measure(const topology::Machine& machine, Crew& crew,
                                  const Workload& workload);

}  // namespace outboard::update_bench
