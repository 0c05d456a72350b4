// SPDX-License-Identifier: Apache-2.0
/// The machine and its threads, ready to measure: what a program that measures begins with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/machine.hpp"
#include "update_bench/crew.hpp"
#include "update_bench/measure.hpp"

namespace outboard::update_bench {

struct MachineInfo {
  std::string processor;  ///< "" if unknown
  std::string isa;        ///< the SIMD target in use
  std::vector<std::uint32_t> threads_per_node;
  std::string threads_why;
  std::string notes;  ///< what is not as asked for, one line each
};

class Bench {
 public:
  /// `threads_per_node` 0: every allowed physical core. The engine leaves one to the trainer; here
  /// nobody else computes. @throws what exec::make_default_executor() does.
  explicit Bench(std::uint32_t threads_per_node);

  [[nodiscard]] MachineInfo info() const;
  /// As measure() (update_bench/measure.hpp).
  [[nodiscard]] Measurement measure(const Workload& workload);
  [[nodiscard]] Crew& crew() noexcept { return crew_; }

 private:
  topology::Machine machine_;
  Crew crew_;
};

}  // namespace outboard::update_bench
