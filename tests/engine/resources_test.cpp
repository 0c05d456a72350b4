// SPDX-License-Identifier: Apache-2.0
/// What a step may cost: allocations, bytes on the link, waits for the device, memory, threads.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "engine/allocation_counter.hpp"
#include "engine/flavours.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

/// The executor that this build prefers and a device in real time.
Flavour real_time(const std::string& name) {
  Flavour out;
  out.name = name;
  out.mode = sim::Mode::threads;
  return out;
}

std::vector<Flavour> every_way() {
  std::vector<Flavour> out = all_flavours();
  out.push_back(real_time("threads_serial"));
  out.back().schedule = Schedule::serial;
  out.push_back(real_time("threads_no_flags"));
  out.back().stream_memory_ops = false;
  out.push_back(real_time("threads_two_nodes"));
  out.back().topology = "numa:2 core:2 pu:1";
  return out;
}

TinyOptions mixed_model(const Flavour& flavour) {
  TinyOptions options;
  options.device = flavour.device();
  Config config;
  config.max_grad_norm = 1.0;
  config.loss_scaling.initial_scale = 256.0;
  options.config = flavour.apply(config);
  for (const std::uint64_t elems : {30000u, 7u, 0u, 9000u, 4096u, 100u}) {
    TinyParameter parameter;
    parameter.elems = elems;
    options.parameters.push_back(parameter);
  }
  options.digest = false;
  return options;
}

std::uint64_t elements(const TinyOptions& options) {
  std::uint64_t sum = 0;
  for (const TinyParameter& parameter : options.parameters) sum += parameter.elems;
  return sum;
}

class Resources : public ::testing::TestWithParam<Flavour> {};
INSTANTIATE_TEST_SUITE_P(Ways, Resources, ::testing::ValuesIn(every_way()),
                         [](const auto& test) { return flavour_name(test.param); });

// --- allocations ---------------------------------------------------------------------------------

TEST(AllocationCounter, SeesOperatorNewAndMalloc) {
  if (!allocations_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  start_counting();
  void* volatile by_new = ::operator new(100);
  void* volatile by_malloc = std::malloc(10);
  const std::uint64_t counted = stop_counting();
  ::operator delete(by_new);
  std::free(by_malloc);
  EXPECT_EQ(counted, 2u);
}

/// Holds back what is queued on a stream behind it, in real time.
class Stall {
 public:
  Stall(TinyTrainer& trainer, bool wanted)
      : real_(wanted && trainer.options().device.mode == sim::Mode::threads) {
    if (!real_) return;  // virtual time runs only while somebody waits
    trainer.gpu().launch(trainer.reader(), sim::Duration{0}, [this](sim::KernelView&) {
      while (!over_) std::this_thread::yield();
      done_ = true;
    });
  }
  ~Stall() {
    over_ = true;
    while (real_ && !done_) std::this_thread::yield();
  }
  Stall(const Stall&) = delete;
  Stall& operator=(const Stall&) = delete;

 private:
  bool real_;
  std::atomic<bool> over_{false};
  std::atomic<bool> done_{false};
};

/// Steps in which every queue gets as deep as it can: all of a backward, then all uploads. Not
/// where the trainer would wait for what is held back: for a full bounce ring, for a serial step.
void warm_up(TinyTrainer& trainer) {
  const Config& config = trainer.options().config;
  for (int i = 0; i < 3; ++i) {
    {
      const Stall backward(trainer, !config.pinned_slots);
      trainer.forward();
      trainer.backward();
    }
    const Stall uploads(trainer, config.schedule == Schedule::exact);
    trainer.finish();
  }
  trainer.engine().synchronize();
  trainer.gpu().synchronize();
}

TEST_P(Resources, AStepAllocatesNothing) {
  if (!allocations_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  for (const std::uint32_t ring : {0u, 2u}) {
    if (ring > 0 && GetParam().placement != Placement::host) continue;
    TinyOptions options = mixed_model(GetParam());
    options.gradient_ring = ring;
    // A skipped step and a step with a missing gradient among those counted.
    options.injected = {{.step = 1, .parameter = 3, .element = 5},
                        {.step = 8, .parameter = 0, .element = 29999}};
    options.has_gradient = [](std::uint64_t step, std::uint32_t i) {
      return step % 4 != 3 || i != 1;
    };
    TinyTrainer trainer(options);
    trainer.start();
    warm_up(trainer);
    start_counting();
    for (int i = 0; i < 12; ++i) trainer.step();
    trainer.engine().synchronize();
    const std::uint64_t counted = stop_counting();
    EXPECT_EQ(counted, 0u) << "gradient ring " << ring << ", first:\n" << first_allocation();
    EXPECT_EQ(trainer.engine().stats().steps_skipped, 2u);
  }
}

// --- bytes on the link ---------------------------------------------------------------------------

TEST_P(Resources, AStepMovesTwoBytesEachWay) {
  TinyOptions options = mixed_model(GetParam());
  const std::uint64_t elems = elements(options);
  TinyTrainer trainer(options);
  trainer.start();
  trainer.step();
  trainer.engine().synchronize();
  trainer.gpu().synchronize();
  const sim::Counters before = trainer.gpu().counters();
  const StepStats stats_before = trainer.engine().stats();
  constexpr std::uint64_t kSteps = 5;
  for (std::uint64_t i = 0; i < kSteps; ++i) trainer.step();
  trainer.engine().synchronize();
  trainer.gpu().synchronize();
  const sim::Counters after = trainer.gpu().counters();
  const StepStats stats = trainer.engine().stats();

  const bool resident = GetParam().placement == Placement::device_resident;
  const std::uint64_t payload = resident ? 0 : 2 * elems * kSteps;
  EXPECT_EQ(stats.gradient_bytes_down - stats_before.gradient_bytes_down, payload);
  EXPECT_EQ(stats.weight_bytes_up - stats_before.weight_bytes_up, payload);
  const std::uint64_t gate = stats.gate_bytes_down - stats_before.gate_bytes_down;
  EXPECT_GT(gate, 0u);
  // The norm's scalars; resident updates also send how many weights overflowed.
  EXPECT_LE(gate, (resident ? 32 : 24) * options.parameters.size() * kSteps);
  EXPECT_EQ(after.bytes_to_host - before.bytes_to_host, payload + gate);
  EXPECT_EQ(after.bytes_to_device - before.bytes_to_device, payload);
  EXPECT_EQ(after.live_allocations, before.live_allocations);
  EXPECT_EQ(after.live_events, before.live_events);
  EXPECT_EQ(after.live_streams, before.live_streams);
  EXPECT_EQ(after.live_registrations, before.live_registrations);
  EXPECT_EQ(stats.steps_applied, kSteps + 1);
}

TEST_P(Resources, ASkippedStepSendsNoWeights) {
  TinyOptions options = mixed_model(GetParam());
  options.injected = {{.step = 1, .parameter = 0, .element = 0}};
  TinyTrainer trainer(options);
  trainer.start();
  trainer.step();
  trainer.engine().synchronize();
  const std::uint64_t before = trainer.engine().stats().weight_bytes_up;
  EXPECT_TRUE(trainer.step().result.skipped());
  trainer.engine().synchronize();
  EXPECT_EQ(trainer.engine().stats().weight_bytes_up, before);
}

// --- waits for the device ------------------------------------------------------------------------

TEST_P(Resources, WaitsDoNotGrowWithTheNumberOfParameters) {
  for (const double max_grad_norm : {0.0, 1.0}) {
    TinyOptions options;
    options.device = GetParam().device();
    options.device.memory_bytes = std::size_t{64} << 20;
    options.config = GetParam().apply({});
    options.config.max_grad_norm = max_grad_norm;
    options.config.bucket_bytes = std::size_t{64} << 10;
    options.config.loss_scaling.initial_scale = 256.0;
    options.parameters.resize(2048);
    for (TinyParameter& parameter : options.parameters) parameter.elems = 1000;
    options.digest = false;
    options.max_steps = 8;
    TinyTrainer trainer(options);
    trainer.start();
    trainer.step();
    trainer.step();
    const StepStats before = trainer.engine().stats();
    const sim::Counters counters = trainer.gpu().counters();
    constexpr std::uint64_t kSteps = 4;
    for (std::uint64_t i = 0; i < kSteps; ++i) trainer.step();
    const std::uint64_t syncs =
        trainer.engine().stats().host_device_syncs - before.host_device_syncs;
    const std::uint64_t waits = trainer.gpu().counters().host_waits - counters.host_waits;
    const bool blocks = GetParam().pinned_slots || !GetParam().stream_memory_ops;
    // Where wait() may block the host, it waits for each bucket at most.
    const std::uint64_t buckets = 2048u * 2000u / options.config.bucket_bytes + 2;
    const std::uint64_t allowed = blocks ? 4 + buckets : 4;
    EXPECT_LE(syncs, allowed * kSteps) << "max_grad_norm " << max_grad_norm;
    EXPECT_LE(waits, allowed * kSteps) << "max_grad_norm " << max_grad_norm;
    EXPECT_GT(syncs, 0u);
  }
}

// --- memory --------------------------------------------------------------------------------------

std::size_t page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

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
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur >= bytes || geteuid() == 0;
}

TinyOptions large_model(const Flavour& flavour) {
  TinyOptions options = mixed_model(flavour);
  options.config.bucket_bytes = std::size_t{64} << 10;
  options.parameters.clear();
  for (const std::uint64_t elems : {100000u, 50000u, 150000u, 33u}) {
    TinyParameter parameter;
    parameter.elems = elems;
    options.parameters.push_back(parameter);
  }
  return options;
}

TEST_P(Resources, TheLedgerNamesEveryHostPage) {
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

TEST_P(Resources, TheLedgerNamesEveryDeviceByte) {
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

TEST_P(Resources, HostMemoryIsTwelveBytesOfStateAndTwoOfStaging) {
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
  EXPECT_GE(host, 14 * elems);
  EXPECT_LE(host, 14 * elems * 1.01 + padding + ring);
  EXPECT_LE(on_device, padding);
  double state = 0.0;
  for (const LedgerEntry& entry : ledger.entries) {
    const bool is_state = entry.purpose.find("master") != std::string::npos ||
                          entry.purpose.find("exp_avg") != std::string::npos;
    if (is_state) state += static_cast<double>(entry.bytes);
  }
  EXPECT_GE(state, 12 * elems);
  EXPECT_LE(state, 12 * elems * 1.01 + padding);
}

TEST_P(Resources, TheLedgerPrintsItsTotals) {
  TinyTrainer trainer(large_model(GetParam()));
  trainer.start();
  const MemoryLedger ledger = trainer.engine().ledger();
  const std::string text = ledger.to_string();
  for (const LedgerEntry& entry : ledger.entries) {
    EXPECT_NE(text.find(entry.purpose), std::string::npos) << entry.purpose << " in\n" << text;
  }
}

TEST_P(Resources, PinnedMemoryStaysWithinItsLimit) {
  TinyOptions options = large_model(GetParam());
  options.device.pinned_limit_bytes = std::size_t{200} << 10;
  TinyTrainer trainer(options);
  trainer.start();
  EXPECT_LE(trainer.engine().ledger().bytes(MemoryPlace::host_pinned), std::size_t{200} << 10);
  EXPECT_TRUE(trainer.step().result.applied());
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

/// A shared pool may start a worker late. A leak would be one thread for each life or step.
constexpr std::size_t kLatePoolThreads = 10;

void one_life(const Flavour& flavour) {
  TinyTrainer trainer(large_model(flavour));
  trainer.start();
  trainer.run(2);
}

TEST_P(Resources, FiftyLivesLeaveNothingBehind) {
  for (int i = 0; i < 5; ++i) one_life(GetParam());
  const std::size_t threads = entries_in("/proc/self/task");
  const std::size_t files = entries_in("/proc/self/fd");
  const std::size_t rss = rss_bytes();
  for (int i = 0; i < 50; ++i) one_life(GetParam());
  EXPECT_LT(rss_bytes(), rss + (std::size_t{20} << 20));
  EXPECT_LE(entries_in("/proc/self/task"), threads + kLatePoolThreads);
  EXPECT_EQ(entries_in("/proc/self/fd"), files);
}

TEST_P(Resources, AStepStartsNoThreadAndOpensNoFile) {
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
