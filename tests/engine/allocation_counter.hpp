// SPDX-License-Identifier: Apache-2.0
/// Counts every allocation of the process, of any thread and any library, but for what starting a
/// thread takes and what a thread allocates whose first allocation falls into the counting.
#pragma once

#include <cstdint>
#include <string>

namespace outboard::testing {

/// Whether this build can count: sanitizers bring their own malloc.
[[nodiscard]] bool allocations_counted() noexcept;
void start_counting() noexcept;
/// malloc, calloc, realloc and aligned calls (operator new uses them) since start_counting().
[[nodiscard]] std::uint64_t stop_counting() noexcept;
/// Where the first counted allocation came from, one frame a line.
[[nodiscard]] std::string first_allocation();

}  // namespace outboard::testing
