// SPDX-License-Identifier: Apache-2.0
/// What an engine holds: the ledger against the pages that are there, limits, and what is left
/// behind when it goes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "engine/allocation_counter.hpp"
#include "engine/measured_models.hpp"
#include "support/address_space_limit.hpp"
#include "support/expect_error.hpp"

namespace outboard::testing {
namespace {

class Memory : public ::testing::TestWithParam<Flavour> {};
INSTANTIATE_TEST_SUITE_P(Ways, Memory, ::testing::ValuesIn(every_way()),
                         [](const auto& test) { return flavour_name(test.param); });

/// Bytes of the pages that hold [address, address + bytes) and are resident.
std::size_t resident_bytes(const void* address, std::size_t bytes) {
  const std::size_t page = page_bytes();
  const std::size_t first = reinterpret_cast<std::size_t>(address) / page;
  const std::size_t last = (reinterpret_cast<std::size_t>(address) + bytes - 1) / page;
  const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  std::size_t resident = 0;
  for (std::size_t i = first; i <= last; ++i) {
    std::uint64_t entry = 0;
    const auto where = static_cast<off_t>(i * sizeof entry);
    if (pread(pagemap, &entry, sizeof entry, where) != sizeof entry) break;
    if (entry >> 63 != 0) resident += page;
  }
  close(pagemap);
  return resident;
}

/// Whether the mapping at `address` is locked in memory.
bool is_locked(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(smaps, line)) {
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) {
      inside = from <= wanted && wanted < to;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line.find(" lo") != std::string::npos;
    }
  }
  return false;
}

bool may_lock(std::size_t bytes) {
  if (!allocations_counted()) return false;  // sanitizers make mlock() do nothing
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur >= bytes || geteuid() == 0;
}

TEST_P(Memory, TheLedgerNamesEveryHostPage) {
  TinyTrainer trainer(large_model(GetParam()));
  trainer.start();
  const MemoryLedger ledger = trainer.engine().ledger();
  EXPECT_EQ(ledger.trainable_elems, elements(trainer.options()));
  std::size_t host = 0;
  for (const LedgerEntry& entry : ledger.entries) {
    if (entry.place == MemoryPlace::device) continue;
    SCOPED_TRACE(entry.purpose);
    host += entry.bytes;
    EXPECT_FALSE(entry.purpose.empty());
    if (entry.bytes == 0) continue;
    ASSERT_NE(entry.address, nullptr);
    // All there after commit(), before any step; a range may start and end inside a page.
    const std::size_t resident = resident_bytes(entry.address, entry.bytes);
    EXPECT_GE(resident, entry.bytes);
    EXPECT_LT(resident, entry.bytes + 2 * page_bytes());
    if (entry.place == MemoryPlace::host_pinned && may_lock(std::size_t{16} << 20)) {
      EXPECT_TRUE(is_locked(entry.address));
    }
  }
  EXPECT_EQ(host,
            ledger.bytes(MemoryPlace::host_pinned) + ledger.bytes(MemoryPlace::host_pageable));
}

TEST_P(Memory, TheLedgerNamesEveryDeviceByte) {
  TinyTrainer trainer(large_model(GetParam()));
  const std::size_t before = trainer.gpu().memory().used_bytes;
  trainer.start();
  const std::size_t engine = trainer.gpu().memory().used_bytes - before;
  const MemoryLedger ledger = trainer.engine().ledger();
  std::size_t rounded = 0;  // the device gives memory out in 256 bytes
  for (const LedgerEntry& entry : ledger.entries) {
    if (entry.place == MemoryPlace::device) rounded += (entry.bytes + 255) / 256 * 256;
  }
  EXPECT_EQ(rounded, engine);
  trainer.run(2);
  trainer.engine().synchronize();
  EXPECT_EQ(trainer.gpu().memory().used_bytes - before, engine) << "a step allocated device memory";
}

TEST_P(Memory, HostMemoryIsTwelveBytesOfStateAndTwoOfStaging) {
  TinyTrainer trainer(large_model(GetParam()));
  trainer.start();
  const MemoryLedger ledger = trainer.engine().ledger();
  const auto elems = static_cast<double>(ledger.trainable_elems);
  const auto host = static_cast<double>(ledger.bytes(MemoryPlace::host_pinned) +
                                        ledger.bytes(MemoryPlace::host_pageable));
  const auto on_device = static_cast<double>(ledger.bytes(MemoryPlace::device));
  // A cache line or a page for each parameter and purpose, and huge pages for arenas from 2 MiB on.
  const double padding = 4096.0 * 4 * 8 + 2 * (2 << 20);
  if (GetParam().placement == Placement::device_resident) {
    EXPECT_GE(on_device, 12 * elems);
    EXPECT_LE(on_device, 12 * elems * 1.01 + padding);
    EXPECT_LE(host, padding);
    return;
  }
  const double ring = GetParam().pinned_slots ? 4.0 * (64 << 10) : 0.0;
  const double resident = 12 * trainer.options().config.device_fraction * elems;
  EXPECT_GE(host, 14 * elems - resident * 14 / 12 * 1.01);
  EXPECT_LE(host, 14 * elems * 1.01 + padding + ring - resident * 14 / 12);
  EXPECT_LE(on_device, resident * 1.01 + padding);
  double state = 0.0;
  for (const LedgerEntry& entry : ledger.entries) {
    const bool is_state = entry.purpose.find("master") != std::string::npos ||
                          entry.purpose.find("exp_avg") != std::string::npos;
    if (is_state) state += static_cast<double>(entry.bytes);
  }
  EXPECT_GE(state, 12 * elems);
  EXPECT_LE(state, 12 * elems * 1.01 + padding);
}

TEST_P(Memory, TheLedgerPrintsItsTotals) {
  TinyTrainer trainer(large_model(GetParam()));
  trainer.start();
  const MemoryLedger ledger = trainer.engine().ledger();
  const std::string text = ledger.to_string();
  for (const LedgerEntry& entry : ledger.entries) {
    EXPECT_NE(text.find(entry.purpose), std::string::npos) << entry.purpose << " in\n" << text;
  }
}

TEST(Ledger, ColumnsAreStraightHoweverLongAPurposeIs) {
  const MemoryLedger ledger{
      .entries = {{.purpose = "short", .place = MemoryPlace::device, .bytes = 1},
                  {.purpose = std::string(300, 'x'),
                   .place = MemoryPlace::host_pinned,
                   .bytes = 2}},
      .trainable_elems = 1};
  std::istringstream lines(ledger.to_string());
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(line.find(" B "), 339u) << line;
    EXPECT_EQ(line.substr(line.size() - 7), "B/param") << line;
  }
  EXPECT_EQ(count, 5u);
}

TEST_P(Memory, PinnedMemoryStaysWithinItsLimit) {
  TinyOptions options = large_model(GetParam());
  options.device.pinned_limit_bytes = std::size_t{200} << 10;
  TinyTrainer trainer(options);
  trainer.start();
  EXPECT_LE(trainer.engine().ledger().bytes(MemoryPlace::host_pinned), std::size_t{200} << 10);
  EXPECT_TRUE(trainer.step().result.applied());
  EXPECT_TRUE(trainer.step().result.applied());
}

TEST(HostMemory, ACommitThatRunsOutSaysHowMuchAndLeavesNothing) {
  if (!allocations_counted()) GTEST_SKIP() << "a sanitizer needs the address space";
  TinyOptions options;
  options.device = virtual_device();
  options.config.host.synthetic_topology = "numa:1 core:2 pu:1";
  options.config.loss_scaling.initial_scale = 256.0;
  options.parameters.resize(1);
  options.parameters[0].elems = 4u << 20;  // 48 MiB of state
  TinyTrainer trainer(options);
  const sim::Counters before = trainer.gpu().counters();
  trainer.prepare();
  {
    const AddressSpaceLimit limit(std::size_t{24} << 20);
    // The second stream: 16 MiB that start 4,352 bytes into its memory.
    expect_error(ErrorCode::out_of_memory, {"16781568"}, [&] { trainer.engine().commit(); });
  }
  const sim::Counters after = trainer.gpu().counters();
  EXPECT_EQ(after.live_allocations, before.live_allocations);
  EXPECT_EQ(after.live_streams, before.live_streams);
  EXPECT_EQ(after.live_events, before.live_events);
  EXPECT_EQ(after.live_registrations, before.live_registrations);
  // With room the same engine commits.
  trainer.engine().commit();
  EXPECT_TRUE(trainer.step().result.applied());
}

// --- what is left behind -------------------------------------------------------------------------

std::size_t rss_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  statm >> total >> resident;
  return resident * page_bytes();
}

std::size_t entries_in(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                std::filesystem::directory_iterator()));
}

/// A shared pool may start workers late, on a busy machine all that it has: then a process has so
/// many threads, this one among them, and never more.
constexpr std::size_t kThreadsOfAFullPool = 256;
/// In 50 steps few come late; a leak would be at least one thread for each.
constexpr std::size_t kLatePoolThreads = 40;

void one_life(const Flavour& flavour) {
  TinyTrainer trainer(large_model(flavour));
  trainer.start();
  trainer.run(2);
}

TEST_P(Memory, FiftyLivesLeaveNothingBehind) {
  for (int i = 0; i < 5; ++i) one_life(GetParam());
  const std::size_t threads = entries_in("/proc/self/task");
  const std::size_t files = entries_in("/proc/self/fd");
  const std::size_t rss = rss_bytes();
  for (int i = 0; i < 50; ++i) one_life(GetParam());
  // A sanitizer keeps freed memory to catch late uses.
  if (allocations_counted()) {
    EXPECT_LT(rss_bytes(), rss + (std::size_t{20} << 20));
  }
  EXPECT_LE(entries_in("/proc/self/task"),
            std::max(threads + kLatePoolThreads, kThreadsOfAFullPool));
  EXPECT_EQ(entries_in("/proc/self/fd"), files);
}

TEST_P(Memory, AStepStartsNoThreadAndOpensNoFile) {
  TinyTrainer trainer(large_model(GetParam()));
  trainer.start();
  trainer.run(3);
  trainer.engine().synchronize();
  const std::size_t threads = entries_in("/proc/self/task");
  const std::size_t files = entries_in("/proc/self/fd");
  trainer.run(50);
  EXPECT_LE(entries_in("/proc/self/task"), threads + kLatePoolThreads);
  EXPECT_EQ(entries_in("/proc/self/fd"), files);
}

}  // namespace
}  // namespace outboard::testing
