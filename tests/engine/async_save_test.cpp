// SPDX-License-Identifier: Apache-2.0
// A save beside training holds the state at its call, byte for byte, and costs no more than it
// must.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>

#include "engine/checkpoint_models.hpp"
#include "support/seeds.hpp"
#include "support/temporary_folder.hpp"

namespace outboard {
namespace {

using namespace testing;

/// Bytes by name.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return files;
}

struct SavedRun {
  std::map<std::string, std::string> files;
  std::uint64_t digest = 0;      // that it holds
  std::uint64_t end_digest = 0;  // of the state three steps later
  StepStats stats;
};

constexpr std::uint64_t kStepsAfter = 3;

SavedRun run(const TinyOptions& options, std::uint64_t before, bool async) {
  const TemporaryFolder folder;
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(before);
  SavedRun out;
  std::optional<SaveTicket> ticket;
  SaveReport report;
  if (async) {
    ticket.emplace(trainer.engine().save_async(folder.path("run")));
  } else {
    report = trainer.engine().save(folder.path("run"));
  }
  trainer.run(kStepsAfter);
  if (ticket) {
    report = ticket->wait();
    EXPECT_TRUE(ticket->done());
    EXPECT_EQ(ticket->progress().written_bytes, report.bytes);
  }
  out.files = files_of(report.folder);
  out.digest = report.digest;
  out.end_digest = trainer.engine().state_digest();
  out.stats = trainer.engine().stats();
  return out;
}

std::uint64_t total_elems(const TinyOptions& options) {
  std::uint64_t elems = 0;
  for (const TinyParameter& parameter : options.parameters) elems += parameter.elems;
  return elems;
}

void expect_same(const TinyOptions& options, std::uint64_t before) {
  const SavedRun expected = run(options, before, false);
  const SavedRun seen = run(options, before, true);
  EXPECT_TRUE(expected.files == seen.files) << "the checkpoints differ";
  EXPECT_EQ(expected.digest, seen.digest);
  EXPECT_EQ(expected.end_digest, seen.end_digest) << "saving changed the run";
  EXPECT_LE(seen.stats.save_copied_bytes, total_elems(options) * 16);
}

/// Nothing, one bucket or less, some, all.
void draw_save(Draw& draw, TinyOptions& options) {
  const std::array<std::size_t, 4> sizes = {0, 64 << 10, 192 << 10, 256 << 20};
  options.config.snapshot_bytes = sizes.at(draw.below(sizes.size()));
  options.device.rates.disk_bytes_per_s = draw.rate(6, 5);
  options.digest = draw.below(4) == 0;
}

TEST(AsyncSave, HoldsTheStateOfItsCallOnAnyMachine) {
  for_each_seed(64, [](std::uint64_t seed) {
    TinyOptions options = elsewhere(model_of(seed), seed);
    Draw draw(mix_bits(seed, 3, 4));
    draw_save(draw, options);
    SCOPED_TRACE(describe(options) + " snapshot " + std::to_string(options.config.snapshot_bytes) +
                 " disk " + std::to_string(options.device.rates.disk_bytes_per_s));
    expect_same(options, 1 + seed % 5);
  });
}

class AsyncSaveIn : public ::testing::TestWithParam<std::tuple<Schedule, Placement>> {};

TinyOptions ungated(Schedule schedule, Placement placement) {
  TinyOptions options = small_model();
  options.config.schedule = schedule;
  options.config.placement = placement;
  if (placement == Placement::fraction) {
    options.config.device_fraction = nearest_split(options, 0.5).fraction;
  }
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.max_grad_norm = 0.0;
  return options;
}

TEST_P(AsyncSaveIn, EverySize) {
  const auto [schedule, placement] = GetParam();
  if (placement == Placement::automatic && schedule == Schedule::open) return;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    TinyOptions options = ungated(schedule, placement);
    Draw draw(mix_bits(seed, 7, static_cast<std::uint64_t>(placement)));
    draw_device(draw, options.device);
    draw_save(draw, options);
    draw_trainer(draw, options);
    options.device.seed = seed;
    if (seed % 3 == 0) {
      options.config.accumulate = Accumulate::host;
      options.config.accumulation = options.passes = 2;
    }
    SCOPED_TRACE("seed " + std::to_string(seed) + " " + describe(options) + " snapshot " +
                 std::to_string(options.config.snapshot_bytes));
    expect_same(options, 2 + seed % 2);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, AsyncSaveIn,
    ::testing::Combine(
        ::testing::Values(Schedule::exact, Schedule::blocking, Schedule::open, Schedule::serial),
        ::testing::Values(Placement::host, Placement::device_resident, Placement::fraction,
                          Placement::device_streamed, Placement::automatic)),
    [](const auto& tested) {
      return std::string(name_of(std::get<0>(tested.param))) + "_" +
             std::to_string(static_cast<int>(std::get<1>(tested.param)));
    });

}  // namespace
}  // namespace outboard
