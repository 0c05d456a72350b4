// SPDX-License-Identifier: Apache-2.0
/// One GPU's primary context, the one that frameworks of the same process use too.
#pragma once

#include <cstdint>
#include <string>

#include "device/cuda/driver_api.hpp"

namespace outboard::device::cuda {

/// What a failed call worked on, for its message: nothing is formatted while calls succeed.
struct Subject {
  const char* what = "";         ///< "bytes", or a stream's name
  std::uint64_t amount = ~0ULL;  ///< of `what`; all ones: none
};

/// Retains the device's primary context as long as it lives.
class Context {
 public:
  /// @throws Error{invalid_argument} for an ordinal that the driver does not have,
  /// Error{device_failure} naming the call.
  explicit Context(int ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] const DriverApi& api() const noexcept { return api_; }
  [[nodiscard]] CUcontext handle() const noexcept { return context_; }
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] const std::string& device_name() const noexcept { return name_; }
  /// @throws Error{device_failure}.
  [[nodiscard]] int attribute(CUdevice_attribute wanted) const;

  /// @throws Error{device_failure} unless the call succeeded.
  void require(CUresult result, const char* call, const Subject& subject = {}) const;

 private:
  const DriverApi& api_;
  int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::string name_;
};

/// Makes the context current on this thread, and on destruction again what was current before: a
/// thread of the caller's keeps its own.
class Current {
 public:
  /// @throws Error{device_failure}.
  explicit Current(const Context& context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const DriverApi& api_;
};

}  // namespace outboard::device::cuda
