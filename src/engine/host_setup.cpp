// SPDX-License-Identifier: Apache-2.0
#include "engine/host_setup.hpp"

namespace outboard::engine {

std::uint32_t default_reserve(const topology::Machine& machine, Schedule schedule) {
  const bool overlaps = schedule == Schedule::exact || schedule == Schedule::open;
  return overlaps ? topology::default_reserve(machine) : 0;
}

std::unique_ptr<exec::Executor> make_executor(device::Backend& backend,
                                              const topology::Machine& machine,
                                              const std::vector<std::uint32_t>& threads) {
  core::VirtualLoop* loop = backend.virtual_loop();
  if (loop == nullptr) return exec::make_default_executor(machine, threads);
  std::vector<double> rates;
  for (std::uint32_t node = 0; node < threads.size(); ++node) {
    rates.push_back(backend.host_elems_per_s(node));
  }
  return exec::make_virtual_executor(*loop, threads, rates);
}

std::string kernels_problem(const device::Backend& backend) {
  const std::string& why = backend.why_no_kernels();
  if (why.empty()) return "";
  return "the device runs none of the engine's kernels (" + why +
         "): norms are made on the host, 2 to 4 bytes per parameter and step more on the link, and "
         "no state can be on the device; a newer driver helps";
}

}  // namespace outboard::engine
