// SPDX-License-Identifier: Apache-2.0
// What a save beside training costs, waits for, refuses and survives.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/drawn_options.hpp"
#include "support/expect_error.hpp"
#include "support/log_lines.hpp"
#include "support/temporary_folder.hpp"

namespace outboard {
namespace {

using namespace testing;
using std::chrono::milliseconds;

constexpr std::uint64_t kParameters = 8;
constexpr std::uint64_t kElems = 16'384;
constexpr std::uint64_t kStateBytes = kParameters * kElems * 12;

/// 10 ms of forward and of backward; updates of 4 ms, which hide behind the next forward.
TinyOptions timed_model() {
  TinyOptions options;
  options.device = virtual_device(3);
  options.config.bucket_bytes = kElems * 2;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.config.loss_scaling = {.initial_scale = 64.0};
  for (std::uint64_t i = 0; i < kParameters; ++i) options.parameters.push_back({"", kElems});
  options.forward = options.backward = sim::Duration(10'000'000 / kParameters);
  options.device.rates.host_elems_per_s = {static_cast<double>(kParameters * kElems) / 4e-3};
  options.device.rates.link_down_bytes_per_s = options.device.rates.link_up_bytes_per_s = 1e9;
  options.digest = false;
  return options;
}

struct Cost {
  double run_ms = 0.0;   // of six steps
  double save_ms = 0.0;  // until the save had ended
  StepStats stats;
  std::uint64_t digest = 0;
};

/// Of a save after the second step, if the disk takes anything.
Cost cost_of(TinyOptions options, double disk_bytes_per_s, std::size_t snapshot_bytes) {
  options.device.rates.disk_bytes_per_s = disk_bytes_per_s;
  options.config.snapshot_bytes = snapshot_bytes;
  const TemporaryFolder folder;
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(2);
  sim::Gpu gpu = trainer.gpu();
  const auto ms_since = [&](sim::Duration start) {
    return static_cast<double>((gpu.now() - start).count()) * 1e-6;
  };
  const sim::Duration start = gpu.now();
  std::optional<SaveTicket> ticket;
  if (disk_bytes_per_s > 0.0) ticket.emplace(trainer.engine().save_async(folder.path("run")));
  trainer.run(6);
  gpu.synchronize(trainer.reader());
  Cost cost;
  cost.run_ms = ms_since(start);
  if (ticket) ticket->wait();
  cost.save_ms = ms_since(start);
  cost.stats = trainer.engine().stats();
  cost.digest = trainer.engine().state_digest();
  return cost;
}

TEST(AsyncSaveCost, IsHiddenWhereTheSnapshotHoldsWhatTheDiskCannotTake) {
  const Cost without = cost_of(timed_model(), 0.0, 0);
  // Of the disk's 60 ms the six steps take 120.
  const Cost with = cost_of(timed_model(), static_cast<double>(kStateBytes) / 60e-3, 64 << 20);
  EXPECT_EQ(with.digest, without.digest);
  EXPECT_EQ(with.stats.save_wait_us, 0.0);
  EXPECT_LE(with.run_ms, without.run_ms * 1.05);
  EXPECT_GE(with.run_ms, without.run_ms);
  EXPECT_GT(with.stats.save_copied_bytes, kStateBytes / 2);
  EXPECT_LE(with.stats.save_copied_bytes, kStateBytes);
  EXPECT_EQ(without.stats.save_copied_bytes, 0U);
}

TEST(AsyncSaveCost, IsTheDisksTimeWhereThereIsNoSnapshot) {
  const Cost without = cost_of(timed_model(), 0.0, 0);
  const Cost with = cost_of(timed_model(), static_cast<double>(kStateBytes) / 60e-3, 0);
  EXPECT_EQ(with.digest, without.digest);
  EXPECT_EQ(with.stats.save_copied_bytes, 0U);
  const double waited_ms = with.stats.save_wait_us * 1e-3;
  // The update of the first step after the call, which begins 20 ms later, waits for the disk.
  EXPECT_GE(waited_ms, 20.0);
  EXPECT_LE(waited_ms, 60.0);
  EXPECT_LE(with.run_ms, without.run_ms + waited_ms + 1.0);
  EXPECT_GT(with.run_ms, without.run_ms * 1.05);
}

TEST(AsyncSaveCost, FallsWithTheSnapshotsSize) {
  std::vector<double> waits;
  for (const std::size_t buckets : {0U, 2U, 4U, 8U}) {
    const Cost cost =
        cost_of(timed_model(), static_cast<double>(kStateBytes) / 60e-3, buckets * kElems * 12);
    EXPECT_LE(cost.stats.save_copied_bytes, kStateBytes);
    waits.push_back(cost.stats.save_wait_us);
  }
  EXPECT_GT(waits[0], waits[1]);
  EXPECT_GT(waits[1], waits[2]);
  EXPECT_GE(waits[2], waits[3]);
  EXPECT_EQ(waits[3], 0.0);
}

/// A fast disk has written all before any update would overtake it.
TEST(AsyncSaveCost, CopiesNothingThatIsWritten) {
  const Cost cost = cost_of(timed_model(), static_cast<double>(kStateBytes) / 1e-3, 64 << 20);
  EXPECT_EQ(cost.stats.save_copied_bytes, 0U);
  EXPECT_EQ(cost.stats.save_wait_us, 0.0);
  EXPECT_LT(cost.save_ms, cost.run_ms + 1.0);
}

TEST(AsyncSaveCost, OfMemoryIsInTheLedgerAndNoMoreThanTheState) {
  TinyOptions options = timed_model();
  options.config.snapshot_bytes = 1U << 30;
  const TemporaryFolder folder;
  TinyTrainer trainer(options);
  trainer.start();
  const std::size_t before = trainer.engine().ledger().bytes(MemoryPlace::host_pageable);
  trainer.engine().save_async(folder.path("run")).wait();
  const std::size_t held = trainer.engine().ledger().bytes(MemoryPlace::host_pageable) - before;
  EXPECT_GE(held, kStateBytes);
  EXPECT_LT(held, kStateBytes + kParameters * 65'536);
}

// --- calls --------------------------------------------------------------------------------------

class AsyncSaveCalls : public ::testing::Test {
 protected:
  /// Nothing of the save is written before the loop runs.
  static TinyOptions model() {
    TinyOptions options = small_model();
    options.device.rates.disk_bytes_per_s = 1e6;
    options.digest = false;
    return options;
  }
  /// Takes away the folder that a save is writing into.
  void lose_the_folder() {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path("run"))) {
      if (entry.path().filename().string().starts_with(".saving-")) {
        std::filesystem::remove_all(entry.path());
      }
    }
  }
  std::size_t checkpoints() { return list_checkpoints(folder.path("run")).size(); }
  TemporaryFolder folder;
};

TEST_F(AsyncSaveCalls, RefuseWhatSaveRefuses) {
  TinyTrainer trainer(model());
  trainer.prepare();
  expect_error(ErrorCode::protocol_error, {"save_async() before commit()"},
               [&] { (void)trainer.engine().save_async(folder.path("run")); });
  trainer.engine().commit();
  trainer.run(1);
  expect_error(ErrorCode::invalid_config, {"SaveOptions::file_bytes is 5"},
               [&] { (void)trainer.engine().save_async(folder.path("run"), {.file_bytes = 5}); });
  expect_error(ErrorCode::io_failure, {"nowhere"},
               [&] { (void)trainer.engine().save_async(folder.path("nowhere/run")); });
  trainer.forward();
  trainer.give_gradient(1);
  expect_error(ErrorCode::protocol_error, {"save_async()", "call step() or discard() first"},
               [&] { (void)trainer.engine().save_async(folder.path("run")); });
  EXPECT_FALSE(std::filesystem::exists(folder.path("run")));
}

TEST_F(AsyncSaveCalls, RunOneAtATimeAndKeepTheNewest) {
  TinyTrainer trainer(model());
  trainer.start();
  std::vector<SaveTicket> tickets;
  for (int i = 0; i < 4; ++i) {
    trainer.run(1);
    tickets.push_back(trainer.engine().save_async(folder.path("run"), {.keep_last = 2}));
    for (std::size_t k = 0; k + 1 < tickets.size(); ++k) EXPECT_TRUE(tickets[k].done());
    EXPECT_FALSE(tickets.back().done());
  }
  const std::string newest = tickets.back().wait().folder;
  EXPECT_EQ(checkpoints(), 2U);
  EXPECT_EQ(list_checkpoints(folder.path("run")).back(), newest);
  EXPECT_EQ(inspect_checkpoint(newest).steps, 4U);
  (void)trainer.engine().save_async(folder.path("run"), {.keep_last = 2});
  const SaveReport last = trainer.engine().save(folder.path("run"), {.keep_last = 0});
  EXPECT_EQ(checkpoints(), 3U) << "save() waited for the one that ran";
  EXPECT_EQ(inspect_checkpoint(last.folder).digest, trainer.engine().state_digest());
}

/// Each of these calls ends the save that runs, and none harms it.
TEST_F(AsyncSaveCalls, WaitInCallsThatChangeState) {
  TinyOptions options = model();
  options.config.keep_host_room = true;
  TinyTrainer trainer(options);
  trainer.start_with(8);
  trainer.run(3);
  const std::uint64_t saved = trainer.engine().state_digest();
  const auto expect_kept = [&](const char* what, auto call) {
    SCOPED_TRACE(what);
    SaveTicket ticket = trainer.engine().save_async(folder.path("run"), {.keep_last = 0});
    call();
    EXPECT_TRUE(ticket.done());
    verify_checkpoint(ticket.wait().folder);
    EXPECT_EQ(ticket.wait().digest, saved);
    trainer.engine().load(ticket.wait().folder, {.strict = false});
  };
  expect_kept("load()", [&] { trainer.engine().load(folder.path("run")); });
  expect_kept("set_placement()",
              [&] { trainer.engine().set_placement({.placement = Placement::device_resident}); });
  expect_kept("weights_changed()", [&] {
    trainer.engine().wait(trainer.id(0), trainer.reader());
    trainer.engine().weights_changed(trainer.id(0), trainer.reader());
  });
  expect_kept("commit()", [&] {
    trainer.add_parameters(9);
    trainer.commit();
  });
}

TEST_F(AsyncSaveCalls, FinishWithTheEngine) {
  std::optional<SaveTicket> ticket;
  std::uint64_t digest = 0;
  {
    TinyTrainer trainer(model());
    trainer.start();
    trainer.run(2);
    digest = trainer.engine().state_digest();
    ticket.emplace(trainer.engine().save_async(folder.path("run")));
    trainer.run(1);
  }
  EXPECT_TRUE(ticket->done());
  EXPECT_EQ(ticket->wait().digest, digest);
  verify_checkpoint(folder.path("run"));
  EXPECT_EQ(inspect_checkpoint(folder.path("run")).steps, 2U);
}

TEST_F(AsyncSaveCalls, TellTheTicketOfAFailureAndGoOn) {
  LogLines lines;
  TinyOptions options = model();
  options.config.log = lines.sink();
  options.config.snapshot_bytes = 0;
  TinyTrainer plain(model());
  plain.start();
  plain.run(6);
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(2);
  const SaveReport good = trainer.engine().save(folder.path("run"));
  trainer.run(1);
  SaveTicket ticket = trainer.engine().save_async(folder.path("run"));
  lose_the_folder();
  trainer.run(3);
  expect_error(ErrorCode::io_failure, {".saving-", "state-00000"}, [&] { ticket.wait(); });
  expect_error(ErrorCode::io_failure, {".saving-"}, [&] { ticket.wait(); });
  EXPECT_EQ(trainer.engine().state_digest(), plain.engine().state_digest());
  EXPECT_EQ(list_checkpoints(folder.path("run")), std::vector<std::string>{good.folder});
  verify_checkpoint(good.folder);
  trainer.engine().save_async(folder.path("run")).wait();
  std::size_t told = 0;
  for (const std::string& line : lines.texts()) told += line.starts_with("save_async(): ") ? 1 : 0;
  EXPECT_GE(told, 1U);
}

/// As on a disk that is full: from now on no file of this process grows beyond `bytes`.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    (void)std::signal(SIGXFSZ, signal_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
  void (*signal_)(int);
};

TEST_F(AsyncSaveCalls, LeaveTrainingAndTheOldCheckpointWhereTheDiskFillsUpMeanwhile) {
  TinyTrainer plain(model());
  plain.start();
  plain.run(6);
  TinyTrainer trainer(model());
  trainer.start();
  trainer.run(2);
  const SaveReport good = trainer.engine().save(folder.path("run"));
  trainer.run(1);
  SaveTicket ticket = trainer.engine().save_async(folder.path("run"));
  {
    const FileLimit full(8192);
    trainer.run(3);
    expect_error(ErrorCode::no_space, {"state-00000"}, [&] { ticket.wait(); });
  }
  EXPECT_EQ(trainer.engine().state_digest(), plain.engine().state_digest());
  EXPECT_EQ(list_checkpoints(folder.path("run")), std::vector<std::string>{good.folder});
  verify_checkpoint(good.folder);
  trainer.engine().save_async(folder.path("run")).wait();
  EXPECT_EQ(inspect_checkpoint(folder.path("run")).steps, 6U);
}

TEST_F(AsyncSaveCalls, TellTheNextStepOfAFailureThatNobodyWaitsFor) {
  TinyTrainer plain(model());
  plain.start();
  plain.run(4);
  TinyTrainer trainer(model());
  trainer.start();
  trainer.run(1);
  (void)trainer.engine().save_async(folder.path("run"));
  lose_the_folder();
  std::size_t failures = 0;
  for (int i = 0; i < 3; ++i) {
    trainer.forward();
    trainer.backward();
    // Called again: the gradients are still there.
    if (caught([&] { trainer.finish(); }) && ++failures > 0) trainer.finish();
  }
  EXPECT_EQ(failures, 1U);
  EXPECT_EQ(trainer.engine().state_digest(), plain.engine().state_digest());
  EXPECT_EQ(checkpoints(), 0U);
}

TEST_F(AsyncSaveCalls, TellOfAFailureThatAnotherSaveCameBehind) {
  TinyTrainer trainer(model());
  trainer.start();
  trainer.run(1);
  (void)trainer.engine().save_async(folder.path("run"));
  lose_the_folder();
  SaveTicket second = trainer.engine().save_async(folder.path("run"));  // waits for the first
  std::size_t failures = 0;
  for (int i = 0; i < 3; ++i) {
    trainer.forward();
    trainer.backward();
    if (caught([&] { trainer.finish(); }) && ++failures > 0) trainer.finish();
  }
  EXPECT_EQ(failures, 1U);
  verify_checkpoint(second.wait().folder);
}

TEST_F(AsyncSaveCalls, LeaveAnEmptyTicketBehindWhenItMoves) {
  TinyTrainer trainer(model());
  trainer.start();
  SaveTicket ticket = trainer.engine().save_async(folder.path("run"));
  SaveTicket taken = std::move(ticket);
  expect_error(ErrorCode::invalid_argument, {"SaveTicket", "empty"},
               [&] { (void)ticket.done(); });  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(taken.wait().digest, trainer.engine().state_digest());
}

/// Whatever of a step fails: the save ends, with a whole checkpoint or with none.
TEST_F(AsyncSaveCalls, EndWithAnEngineThatFails) {
  for (const Placement placement :
       {Placement::host, Placement::device_resident, Placement::device_streamed}) {
    std::size_t begun = 0, failed = 0;
    for (std::uint64_t nth = 5; nth < 120; nth += 13) {
      for (const sim::Call call :
           {sim::Call::copy_to_host, sim::Call::copy_to_device, sim::Call::kernel}) {
        for (const bool at_call : {true, false}) {
          const TemporaryFolder own;
          TinyOptions failing = model();
          failing.config.placement = placement;
          failing.config.snapshot_bytes = 64 << 10;
          failing.device.faults = {{.call = call, .nth = nth, .at_call = at_call}};
          std::optional<SaveTicket> ticket;
          (void)caught([&] {
            TinyTrainer trainer(failing);
            trainer.start();
            trainer.run(1);
            ticket.emplace(trainer.engine().save_async(own.path("run")));
            trainer.run(3);
          });
          if (!ticket) continue;
          ++begun;
          EXPECT_TRUE(ticket->done());
          const auto failure = caught([&] { verify_checkpoint(ticket->wait().folder); });
          if (!failure) continue;
          ++failed;
          EXPECT_NE(failure->code(), ErrorCode::bad_checkpoint) << failure->what();
          EXPECT_EQ(list_checkpoints(own.path("run")).size(), 0U);
        }
      }
    }
    EXPECT_GT(begun, 0U) << "placement " << static_cast<int>(placement);
    const bool from_device = placement == Placement::device_resident;
    EXPECT_GE(failed, from_device ? 1U : 0U) << "placement " << static_cast<int>(placement);
  }
}

}  // namespace
}  // namespace outboard
