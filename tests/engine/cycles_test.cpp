// SPDX-License-Identifier: Apache-2.0
/// A process that makes and destroys engines all day holds no more at the end than at the start.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "exec/pool_limit.hpp"
#include "outboard/outboard.hpp"
#include "support/device_memory.hpp"
#include "support/expect_error.hpp"

namespace outboard::testing {
namespace {

/// With 12 bytes of state and 2 of staging 100 MB.
constexpr std::uint64_t kElems = 7'200'000;
constexpr int kCycles = 50;
constexpr int kFailingCycle = 5;  ///< before the first look: a leak of a failure would grow in it
constexpr int kFirstLook = 10;

/// The pool that engines share keeps its workers, and starts them when it likes. This is all it may
/// have: an engine of one thread takes one. Whatever else stays is a leak.
constexpr std::size_t kPoolWorkers = 1;

struct Holdings {
  std::size_t rss_bytes = 0, locked_bytes = 0, pinned_bytes = 0, threads = 0, files = 0;
};

std::size_t entries_in(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                std::filesystem::directory_iterator()));
}

std::size_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoul(line.substr(key.size())) << 10;
  }
  return 0;
}

Holdings holdings() {
  return {status_bytes("VmRSS:"), status_bytes("VmLck:"), status_bytes("VmPin:"),
          entries_in("/proc/self/task"), entries_in("/proc/self/fd")};
}

/// A device, an engine on it and two steps, the second of which may fail.
class Cycle {
 public:
  Cycle()
      : gpu_({.memory_bytes = std::size_t{40} << 20}),
        stream_(gpu_.create_stream()),
        weight_(gpu_, kElems * 2),
        gradient_(gpu_, kElems * 2),
        engine_(gpu_.device(), config()) {
    const std::vector<std::uint16_t> ones(kElems, half_from_float(1.0F));
    upload<std::uint16_t>(gpu_, weight_.get(), ones, stream_);
    upload<std::uint16_t>(gpu_, gradient_.get(), ones, stream_);
    parameter_ = engine_.add_parameter({.name = "w",
                                        .dtype = DType::f16,
                                        .elems = kElems,
                                        .data = weight_.get(),
                                        .group = engine_.add_group(AdamW{})});
    engine_.commit();
  }

  StepResult step() {
    engine_.wait(parameter_, stream_);
    engine_.gradient_ready(parameter_, gradient_.get(), stream_);
    return engine_.step();
  }
  void lose_the_device() {
    gpu_.launch(stream_, sim::Duration{0},
                [](sim::KernelView&) { throw std::runtime_error("intended"); });
  }
  [[nodiscard]] std::size_t host_bytes() const {
    const MemoryLedger ledger = engine_.ledger();
    return ledger.bytes(MemoryPlace::host_pinned) + ledger.bytes(MemoryPlace::host_pageable);
  }

 private:
  static Config config() {
    Config out;
    out.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
    out.host.threads_per_node = 1;
    return out;
  }

  sim::Gpu gpu_;
  NativeStream stream_;
  DeviceBuffer weight_, gradient_;
  Engine engine_;
  ParameterId parameter_;
};

void one_cycle(bool failing) {
  Cycle cycle;
  ASSERT_GE(cycle.host_bytes(), 100'000'000U);
  ASSERT_TRUE(cycle.step().applied());
  if (!failing) {
    ASSERT_TRUE(cycle.step().applied());
    return;
  }
  cycle.lose_the_device();
  const std::optional<Error> error = caught([&] { cycle.step(); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::device_failure) << error->what();
}

TEST(Cycles, LeaveTheProcessAsItWas) {
  const PoolLimit pool(kPoolWorkers);
  const Holdings start = holdings();
  Holdings look;
  for (int i = 0; i < kCycles; ++i) {
    if (i == kFirstLook) look = holdings();
    SCOPED_TRACE(i);
    one_cycle(i == kFailingCycle || i == kCycles - 2);
    if (HasFatalFailure()) return;
  }
  const Holdings end = holdings();
  EXPECT_LT(end.rss_bytes, look.rss_bytes + (std::size_t{20} << 20));
  EXPECT_EQ(end.locked_bytes, start.locked_bytes);
  EXPECT_EQ(end.pinned_bytes, start.pinned_bytes);
  EXPECT_EQ(end.files, start.files);
  EXPECT_LE(look.threads, start.threads + kPoolWorkers);
  EXPECT_LE(end.threads, start.threads + kPoolWorkers) << "only the pool's stay";
}

}  // namespace
}  // namespace outboard::testing
