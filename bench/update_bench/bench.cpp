// SPDX-License-Identifier: Apache-2.0
#include "update_bench/bench.hpp"

#include "simd/target.hpp"

namespace outboard::update_bench {
namespace {

std::string line(const std::string& text) {
  return text.empty() || text.ends_with('\n') ? text : text + '\n';
}

}  // namespace

Bench::Bench(std::uint32_t threads_per_node)
    : machine_(topology::discover()),
      crew_(machine_, topology::choose_threads(machine_, threads_per_node, 0)) {}

MachineInfo Bench::info() const {
  return {.processor = processor_name(),
          .isa = std::string(simd::active_target()),
          .threads_per_node = crew_.threads_per_node(),
          .threads_why = crew_.why(),
          .notes = line(crew_.executor().notes()) + line(simd::environment_problem())};
}

Measurement Bench::measure(const Workload& workload) {
  return update_bench::measure(machine_, crew_, workload);
}

}  // namespace outboard::update_bench
