// SPDX-License-Identifier: Apache-2.0
/// The one thing that the rest of the library knows of CUDA. Defined by make_backend.cpp, or by
/// absent.cpp in a build without a toolkit.
#pragma once

#include <memory>

#include "device/backend.hpp"

namespace outboard::device::cuda {

/// Whether this build can drive GPUs.
[[nodiscard]] bool is_built() noexcept;

/// Device `ordinal` as the driver numbers those that this process may see.
/// @throws Error{unsupported} without a toolkit at build time, a driver, or one new enough;
/// Error{invalid_argument} for an ordinal that is not there; Error{device_failure}.
[[nodiscard]] std::shared_ptr<Backend> make_backend(int ordinal);

}  // namespace outboard::device::cuda
