// SPDX-License-Identifier: Apache-2.0
/// Everything public, in one include.
#pragma once

#include "outboard/checkpoint.hpp"   // IWYU pragma: export
#include "outboard/config.hpp"       // IWYU pragma: export
#include "outboard/device.hpp"       // IWYU pragma: export
#include "outboard/engine.hpp"       // IWYU pragma: export
#include "outboard/error.hpp"        // IWYU pragma: export
#include "outboard/exit_status.hpp"  // IWYU pragma: export
#include "outboard/half.hpp"         // IWYU pragma: export
#include "outboard/interchange.hpp"  // IWYU pragma: export
#include "outboard/planning.hpp"     // IWYU pragma: export
#include "outboard/rules.hpp"        // IWYU pragma: export
#include "outboard/sim.hpp"          // IWYU pragma: export
#include "outboard/stats.hpp"        // IWYU pragma: export
#include "outboard/timeline.hpp"     // IWYU pragma: export
#include "outboard/types.hpp"        // IWYU pragma: export
