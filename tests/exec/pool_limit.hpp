// SPDX-License-Identifier: Apache-2.0
/// How many workers the pool that engines share may have.
#pragma once

#include <cstddef>
#include <memory>

namespace outboard::testing {

/// For its lifetime. Engines that need more than it has left bring threads of their own, and take
/// them along. In a build without a shared pool it does nothing.
class PoolLimit {
 public:
  explicit PoolLimit(std::size_t workers);
  ~PoolLimit();
  PoolLimit(const PoolLimit&) = delete;
  PoolLimit& operator=(const PoolLimit&) = delete;

 private:
  struct Control;
  std::unique_ptr<Control> control_;
};

}  // namespace outboard::testing
