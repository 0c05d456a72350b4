// SPDX-License-Identifier: Apache-2.0
/// The floating-point environment of task bodies.
#pragma once

#include <cfenv>

namespace outboard::exec {

/// The default environment (nearest even, no flush-to-zero, nothing trapped) for a scope of the
/// calling thread, which then gets its own one back.
class DefaultFpEnvironment {
 public:
  DefaultFpEnvironment() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFpEnvironment() { std::fesetenv(&saved_); }
  DefaultFpEnvironment(const DefaultFpEnvironment&) = delete;
  DefaultFpEnvironment& operator=(const DefaultFpEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace outboard::exec
