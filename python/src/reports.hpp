// SPDX-License-Identifier: Apache-2.0
/// What the engine reports, as Python's own types.
#pragma once

#include <nanobind/nanobind.h>

#include "outboard/outboard.hpp"

namespace outboard::python {

[[nodiscard]] nanobind::dict to_dict(const StepStats& stats);
[[nodiscard]] nanobind::dict to_dict(const SaveReport& report);
[[nodiscard]] nanobind::dict to_dict(const LoadReport& report);
[[nodiscard]] nanobind::dict to_dict(const CheckpointInfo& info);
/// "text", "trainable_elems", and "entries": one dict each.
[[nodiscard]] nanobind::dict to_dict(const MemoryLedger& ledger);

}  // namespace outboard::python
