// SPDX-License-Identifier: Apache-2.0
/// What an engine runs on: its threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/backend.hpp"
#include "exec/executor.hpp"
#include "outboard/config.hpp"
#include "topology/machine.hpp"

namespace outboard::engine {

/// Leaves a core to the trainer when updates overlap it and there are cores to spare.
[[nodiscard]] std::uint32_t default_reserve(const topology::Machine& machine, Schedule schedule);

/// On the device's virtual clock if it has one. `threads`: by node.
[[nodiscard]] std::unique_ptr<exec::Executor> make_executor(
    device::Backend& backend, const topology::Machine& machine,
    const std::vector<std::uint32_t>& threads);

/// For the log, if the device runs none of the engine's kernels; "": it does.
[[nodiscard]] std::string kernels_problem(const device::Backend& backend);

}  // namespace outboard::engine
