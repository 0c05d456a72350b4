// SPDX-License-Identifier: Apache-2.0
// commit() prepares host memory: pages come once, the peak is what stays, and a long one tells how
// far it is.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/allocation_counter.hpp"
#include "engine/trajectory.hpp"
#include "support/log_lines.hpp"
#include "support/may_skip.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kElems = 32'000'000;

/// A field of /proc/self/status in bytes.
std::uint64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(field)) continue;
    std::istringstream words(line.substr(field.size()));
    std::uint64_t kib = 0;
    words >> kib;
    return kib * 1024;
  }
  return 0;
}

/// From here on VmHWM is the most since now.
bool forget_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return static_cast<bool>(file);
}

/// Faults of all threads that brought a page in without reading a disk.
long faults() {
  rusage usage{};
  EXPECT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_minflt;
}

/// No transparent huge pages for its lifetime: what comes in comes page by page.
struct SmallPages {
  SmallPages() { EXPECT_EQ(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0); }
  ~SmallPages() { (void)prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }
  SmallPages(const SmallPages&) = delete;
  SmallPages& operator=(const SmallPages&) = delete;
};

/// One engine whose weights are zeros that nobody has written on the host.
struct LargeEngine {
  explicit LargeEngine(const Config& config)
      : gpu(sim::Options{.memory_bytes = 2 * kElems + (std::size_t{16} << 20)}),
        engine(gpu.device(), config) {
    const GroupId group = engine.add_group(AdamW{});
    (void)engine.add_parameter({.name = "all",
                                .dtype = DType::f16,
                                .elems = kElems,
                                .data = gpu.allocate(2 * kElems),
                                .group = group});
  }
  sim::Gpu gpu;
  Engine engine;
};

Config plain_config() {
  Config config;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  config.host.synthetic_topology = "numa:2 core:1 pu:1";
  return config;
}

TEST(Preparation, ItsPeakIsWhatStaysAndEveryPageComesOnce) {
  if (!allocations_counted()) GTEST_SKIP() << "a sanitizer keeps memory of its own";
  for (const bool bounce : {false, true}) {
    SCOPED_TRACE(bounce ? "eight slots pinned" : "all pinned");
    Config config = plain_config();
    if (bounce) config.pinned_slots = 8;
    LargeEngine large(config);
    if (!forget_peak()) OUTBOARD_SKIP("the kernel does not forget the peak here");
    const std::uint64_t before = status_bytes("RssAnon:");
    // Each small page that comes is one fault; reading it before it is written would make two.
    const SmallPages small;
    const long faults_before = faults();
    large.engine.commit();
    const auto came = static_cast<double>(faults() - faults_before);
    const std::uint64_t peak = status_bytes("VmHWM:");
    const std::uint64_t steady = status_bytes("VmRSS:");
    const std::uint64_t taken = status_bytes("RssAnon:") - before;
    const MemoryLedger ledger = large.engine.ledger();
    const std::uint64_t known =
        ledger.bytes(MemoryPlace::host_pinned) + ledger.bytes(MemoryPlace::host_pageable);
    std::printf("peak %.1f MB, steady %.1f MB, taken %.1f MB, in the ledger %.1f MB\n",
                static_cast<double>(peak) * 1e-6, static_cast<double>(steady) * 1e-6,
                static_cast<double>(taken) * 1e-6, static_cast<double>(known) * 1e-6);
    EXPECT_GE(known, 14 * kElems);
    EXPECT_LE(static_cast<double>(peak), 1.10 * static_cast<double>(steady));
    // Nothing but what the ledger names has come and stayed, or has been written twice elsewhere.
    EXPECT_GE(taken + (std::uint64_t{1} << 20), known);
    EXPECT_LE(taken, known + known / 50);
    const auto page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
    const double pages = static_cast<double>(known) / page_bytes;
    // The software GPU's memory comes with the first weights that are written there.
    const double of_device = 2.0 * static_cast<double>(kElems) / page_bytes;
    std::printf("%.0f faults for %.0f pages on the host, %.0f on the device\n", came, pages,
                of_device);
    EXPECT_GE(came, pages);
    EXPECT_LE(came, 1.02 * (pages + of_device) + 1000);
  }
}

// --- progress ------------------------------------------------------------------------------------

/// In virtual time, on a node that loads so many elements a second.
std::vector<std::string> lines_of_commit(double elems_per_s) {
  LogLines log;
  TinyOptions options;
  options.device.mode = sim::Mode::virtual_time;
  options.device.rates.host_elems_per_s = {elems_per_s};
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.config.bucket_bytes = 16384;  // 8,192 elements
  options.config.log = log.sink();
  const std::vector<std::uint64_t> sizes(100, 8192);
  add_parameters(options, sizes);
  TinyTrainer trainer(options);
  trainer.start();
  std::vector<std::string> lines = log.texts();
  std::erase_if(lines, [](const std::string& line) { return !line.starts_with("commit()"); });
  return lines;
}

TEST(Preparation, TellsHowFarItIsEveryTwoSeconds) {
  // 819,200 elements in ten seconds.
  const std::vector<std::string> lines = lines_of_commit(81920.0);
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
  ASSERT_EQ(lines.size(), 6U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NE(lines[i].find("of 0.01 GiB of host memory are ready after"), std::string::npos);
    EXPECT_NE(lines[i].find("after " + std::to_string(2 * (i + 1)) + "."), std::string::npos);
  }
  EXPECT_TRUE(lines.back().starts_with("commit(): 0.01 GiB of host memory are ready after 10."));
}

TEST(Preparation, SaysNothingOfLessThanTwoSeconds) {
  EXPECT_TRUE(lines_of_commit(0.0).empty());
  EXPECT_TRUE(lines_of_commit(450'000.0).empty());
}

TEST(Preparation, ASinkThatThrowsStopsNothing) {
  TinyOptions options;
  options.device.mode = sim::Mode::virtual_time;
  options.device.rates.host_elems_per_s = {1000.0};
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.log = [](LogLevel, std::string_view) { throw std::runtime_error("full"); };
  const std::vector<std::uint64_t> sizes(4, 8192);
  add_parameters(options, sizes);
  TinyTrainer trainer(options);
  trainer.start();
  EXPECT_TRUE(trainer.step().result.applied());
}

TEST(Preparation, DescribeNamesThePages) {
  TinyOptions options;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  const std::vector<std::uint64_t> sizes(1, 1'500'000);
  add_parameters(options, sizes);
  TinyTrainer trainer(options);
  trainer.start();
  const std::string text = trainer.engine().describe();
  EXPECT_NE(text.find("pages: "), std::string::npos) << text;
  EXPECT_NE(text.find(" bytes in small ones"), std::string::npos) << text;
  std::uint64_t huge = 0;
  for (const LedgerEntry& entry : trainer.engine().ledger().entries) {
    if (entry.pages != PageKind::small) huge += entry.bytes >> 21 << 21;
  }
  const bool named = text.find("huge ones") != std::string::npos;
  EXPECT_EQ(named, huge > 0) << text;
}

}  // namespace
}  // namespace outboard::testing
