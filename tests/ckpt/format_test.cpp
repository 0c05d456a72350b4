// SPDX-License-Identifier: Apache-2.0
// What is in the files, on the machine's own file system.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "ckpt/folder.hpp"
#include "outboard/error.hpp"
#include "small_state.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace outboard {
namespace {

using testing::expect_error;
using testing::read_version;
using testing::SmallState;

std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Format : public ::testing::Test {
 protected:
  ckpt::SavedCheckpoint save(std::uint32_t version, std::uint32_t keep_last = 1) {
    SmallState state(version);
    return ckpt::save(files, folder.path("run"), state.request(keep_last), state);
  }
  testing::TemporaryFolder folder;
  ckpt::FileSystem& files = ckpt::posix_file_system();
};

TEST_F(Format, SavesReplacesAndReads) {
  EXPECT_EQ(save(1).folder, folder.path("run/save-00000001"));
  EXPECT_EQ(read_version(files, folder.path("run")), 1U);
  save(2);
  EXPECT_EQ(read_version(files, folder.path("run/")), 2U);
  EXPECT_FALSE(std::filesystem::exists(folder.path("run/save-00000001")));
  ckpt::Checkpoint::open(files, folder.path("run")).verify();
}

TEST_F(Format, RemovesWhatAKilledSaveLeft) {
  save(1);
  std::filesystem::create_directories(folder.path("run/.saving-00000002"));
  std::ofstream(folder.path("run/.saving-00000002/state-00000.safetensors")) << "half";
  std::filesystem::create_directories(folder.path("run/.removing-00000000"));
  EXPECT_EQ(read_version(files, folder.path("run")), 1U);
  save(2);
  std::size_t names = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("run"))) {
    EXPECT_EQ(entry.path().filename(), "save-00000002");
    names += 1;
  }
  EXPECT_EQ(names, 1U);
}

TEST_F(Format, LetsOneSaverInAtATime) {
  const ckpt::Publication first(files, folder.path("run"));
  expect_error(ErrorCode::io_failure, {"is being saved into"}, [&] { save(1); });
}

TEST_F(Format, SaysWhatTheSystemSays) {
  SmallState state(1);
  expect_error(ErrorCode::io_failure, {"make the folder", "No such file"},
               [&] { ckpt::save(files, folder.path("not/there"), state.request(), state); });
  std::ofstream(folder.path("file")) << "text";
  expect_error(ErrorCode::io_failure, {"Not a directory"},
               [&] { ckpt::save(files, folder.path("file"), state.request(), state); });
  save(1);
  const std::string tensors = folder.path("run/save-00000001/state-00000.safetensors");
  std::filesystem::remove(tensors);
  ASSERT_EQ(::mkfifo(tensors.c_str(), 0600), 0);
  expect_error(ErrorCode::io_failure, {tensors, "Invalid argument"},
               [&] { read_version(files, folder.path("run")); });
}

TEST_F(Format, KeepsEverythingOfTheManifest) {
  save(3);
  const auto read = ckpt::Checkpoint::open(files, folder.path("run"));
  const ckpt::Manifest& manifest = read.manifest();
  const SmallState state(3);
  const ckpt::Manifest expected = state.manifest();
  EXPECT_EQ(manifest.written_by, "a test");
  EXPECT_EQ(manifest.counters.skipped, 1U);
  EXPECT_EQ(manifest.accumulation, 3U);
  EXPECT_TRUE(manifest.dynamic_loss_scale);
  EXPECT_EQ(manifest.loss_scale, expected.loss_scale);
  EXPECT_EQ(manifest.entries, expected.entries);
  ASSERT_EQ(manifest.groups.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(manifest.groups[i].rule, expected.groups[i].rule);
    EXPECT_EQ(manifest.groups[i].options, expected.groups[i].options);
  }
  ASSERT_EQ(manifest.parameters.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(manifest.parameters[i].names, expected.parameters[i].names);
    EXPECT_EQ(manifest.parameters[i].dtype, expected.parameters[i].dtype);
    EXPECT_EQ(manifest.parameters[i].elems, expected.parameters[i].elems);
    EXPECT_EQ(manifest.parameters[i].group, expected.parameters[i].group);
    EXPECT_EQ(manifest.parameters[i].step_count, expected.parameters[i].step_count);
  }
}

TEST_F(Format, KeepsTheSettingsIfThereAreAny) {
  save(3);
  EXPECT_FALSE(ckpt::Checkpoint::open(files, folder.path("run")).manifest().settings);
  const ckpt::Settings settings{.max_grad_norm = 0.1 + 1e-16,
                                .accumulate = Accumulate::host,
                                .growth_interval = 17,
                                .min_scale = 0.5,
                                .max_scale = 0x1p40};
  SmallState state(4);
  auto request = state.request();
  request.manifest.settings = settings;
  ckpt::save(files, folder.path("run"), request, state);
  EXPECT_EQ(ckpt::Checkpoint::open(files, folder.path("run")).manifest().settings, settings);
}

TEST_F(Format, KeepsEveryRuleAndEveryBitOfItsNumbers) {
  SmallState state(1);
  const double odd = 0.1 + 1e-16;
  state.groups = {
      {AdamW{odd, 0.9, 0.999, 1e-8, 0.1}, {}},
      {Adam{1e-300, 0.0, odd, 1e-15, odd}, {}},
      {Sgd{odd, 0.9, 0.0, true, 1e-4}, {.ema_decay = odd}},
      {Lion{1e-4, odd, 0.99, 3.0}, {}},
      {Adagrad{1e-2, odd, 0.25, 1e-10, 0.0}, {.rounding = Rounding::stochastic, .seed = ~0ull}},
      {Lamb{odd, 0.9, 0.999, 1e-6, 0.01}, {}}};
  ckpt::save(files, folder.path("run"), state.request(), state);
  const auto read = ckpt::Checkpoint::open(files, folder.path("run"));
  ASSERT_EQ(read.manifest().groups.size(), state.groups.size());
  for (std::size_t i = 0; i < state.groups.size(); ++i) {
    EXPECT_EQ(read.manifest().groups[i].rule, state.groups[i].rule) << i;
    EXPECT_EQ(read.manifest().groups[i].options, state.groups[i].options) << i;
  }
}

TEST_F(Format, ReadsAnyRangeOfElements) {
  save(1);
  const auto checkpoint = ckpt::Checkpoint::open(files, folder.path("run"));
  const std::vector<float> all = SmallState(1).elements(0, 1);
  std::vector<float> some(100);
  checkpoint.read_range(0, 1, 500, some);
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(some)),
                                 std::as_bytes(std::span(all).subspan(500, 100))));
  expect_error(ErrorCode::invalid_argument, {"501 to 601", "which has 600"},
               [&] { checkpoint.read_range(0, 1, 501, some); });
}

/// Element count and width decide, the rest is less than 1 % and 64 KiB.
TEST_F(Format, TakesTwelveBytesForAnElement) {
  SmallState state(1);
  state.groups = {{AdamW{}, {}}, {AdamW{}, {}}};
  state.parameters.clear();
  std::uint64_t elems = 0;
  for (int i = 0; i < 10; ++i) {
    state.parameters.push_back({{"w" + std::to_string(i)}, DType::f16, 512, 0, 1, {}});
    elems += 512;
  }
  const auto bytes = [&] {
    auto request = state.request();
    request.file_bytes = std::uint64_t{1} << 30;
    return ckpt::planned_bytes(request);
  };
  EXPECT_LE(bytes(), elems * 12 + elems * 12 / 100 + 65536);
  for (auto& parameter : state.parameters) parameter.elems = 1'000'000;
  EXPECT_LE(bytes(), 120'000'000U + 1'200'000U + 65536U);
}

// --- the committed file of the released format -------------------------------------------------

const std::filesystem::path kGolden = std::filesystem::path(OUTBOARD_GOLDEN_FOLDER) / "v1";

TEST_F(Format, ReadsTheCommittedFilesOfVersion1) {
  EXPECT_EQ(read_version(files, kGolden.string()), 1U);
  ckpt::Checkpoint::open(files, kGolden.string()).verify();
}

TEST_F(Format, WritesTheCommittedFilesOfVersion1) {
  const std::filesystem::path written = save(1).folder;
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(written)) {
    EXPECT_TRUE(content(entry.path()) == content(kGolden / entry.path().filename()))
        << entry.path().filename() << " differs: a change of the format needs a new version";
    count += 1;
  }
  EXPECT_GE(count, 3U);
}

}  // namespace
}  // namespace outboard
