// SPDX-License-Identifier: Apache-2.0
#include "exec/executor.hpp"

namespace outboard::exec {

std::unique_ptr<Executor> make_default_executor(
    const topology::Machine& machine, const std::vector<std::uint32_t>& threads_per_node) {
  return make_thread_executor(machine, threads_per_node);
}

}  // namespace outboard::exec
