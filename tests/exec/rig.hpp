// SPDX-License-Identifier: Apache-2.0
/// One executor of any kind, driven the same way by every test.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/virtual_loop.hpp"
#include "exec/executor.hpp"
#include "topology/machine.hpp"

namespace outboard::exec {

enum class Kind { tbb, threads, virtual_time };

/// The kinds that this build has.
std::vector<Kind> all_kinds();
std::vector<Kind> real_kinds();

inline std::string name_of(const ::testing::TestParamInfo<Kind>& info) {
  return info.param == Kind::tbb ? "tbb" : info.param == Kind::threads ? "threads" : "virtual_time";
}

class Rig {
 public:
  /// `threads_per_node` threads on every node of `machine`; virtual nodes take 1 ns an element.
  Rig(Kind kind, const topology::Machine& machine, std::uint32_t threads_per_node) : loop_(kSeed) {
    const std::vector<std::uint32_t> threads(machine.nodes.size(), threads_per_node);
    if (kind == Kind::tbb) {
      executor_ = make_tbb_executor(machine, threads);
    } else if (kind == Kind::threads) {
      executor_ = make_thread_executor(machine, threads);
    } else {
      executor_ = make_virtual_executor(loop_, threads, std::vector<double>(threads.size(), 1e9));
      virtual_ = true;
    }
  }

  Executor& operator*() noexcept { return *executor_; }
  Executor* operator->() noexcept { return executor_.get(); }
  core::VirtualLoop& loop() noexcept { return loop_; }
  void destroy() { executor_.reset(); }

  /// Returns once `condition` holds; a test that would wait forever runs into its time limit.
  void until(const std::function<bool()>& condition) {
    while (!condition()) {
      if (virtual_) {
        if (!loop_.run_one()) {
          ADD_FAILURE() << "nothing left to run\n" << loop_.report();
          return;
        }
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
  }

 private:
  static constexpr std::uint64_t kSeed = 20;
  core::VirtualLoop loop_;
  std::unique_ptr<Executor> executor_;
  bool virtual_ = false;
};

}  // namespace outboard::exec
