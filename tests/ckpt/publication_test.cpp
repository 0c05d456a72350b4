// SPDX-License-Identifier: Apache-2.0
// A save that dies, fails or loses its power anywhere leaves the checkpoint before, or its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "ckpt/folder.hpp"
#include "ckpt/format.hpp"
#include "ckpt/piecewise_save.hpp"
#include "ckpt/save_plan.hpp"
#include "memory_files.hpp"
#include "outboard/error.hpp"
#include "small_state.hpp"
#include "support/expect_error.hpp"
#include "support/seeds.hpp"
#include "support/temporary_folder.hpp"

namespace outboard {
namespace {

using testing::expect_error;
using testing::MemoryFiles;
using testing::read_version;
using testing::SmallState;

void save(MemoryFiles& files, std::uint32_t version, std::uint32_t keep_last = 1) {
  SmallState state(version);
  ckpt::save(files, "/run", state.request(keep_last), state);
}

std::size_t changes_of_a_second_save() {
  MemoryFiles files;
  save(files, 1);
  const std::size_t before = files.changes();
  save(files, 2);
  return files.changes() - before;
}

TEST(Publication, SavesAndReadsBack) {
  MemoryFiles files;
  SmallState state(1);
  const auto saved = ckpt::save(files, "/run", state.request(), state);
  EXPECT_EQ(saved.folder, "/run/save-00000001");
  EXPECT_EQ(saved.note, "");
  EXPECT_EQ(read_version(files, "/run"), 1U);
  EXPECT_EQ(read_version(files, saved.folder), 1U);
  std::uint64_t bytes = 0;
  for (const auto& [path, data] : files.all_files("/run")) bytes += data.size();
  EXPECT_EQ(saved.bytes, bytes);
  EXPECT_EQ(ckpt::planned_bytes(state.request()), bytes);
  ckpt::Checkpoint::open(files, "/run").verify();
}

TEST(Publication, KeepsAsManyAsAsked) {
  MemoryFiles files;
  for (std::uint32_t version = 1; version <= 4; ++version) save(files, version, 2);
  EXPECT_EQ(files.names("/run"), (std::set<std::string>{"save-00000003", "save-00000004"}));
  EXPECT_EQ(read_version(files, "/run"), 4U);
  EXPECT_EQ(read_version(files, "/run/save-00000003"), 3U);
  for (std::uint32_t version = 5; version <= 7; ++version) save(files, version, 0);
  EXPECT_EQ(files.names("/run").size(), 5U);
}

TEST(Publication, DoesNotTakeACheckpointFromItsReader) {
  MemoryFiles files;
  save(files, 1);
  const ckpt::Checkpoint old = ckpt::Checkpoint::open(files, "/run");
  save(files, 2);
  EXPECT_EQ(files.names("/run"), std::set<std::string>{"save-00000002"});
  old.verify();
  std::vector<std::byte> state(old.manifest().parameters[0].elems * sizeof(float));
  auto stream = old.stream(0, 0);
  stream.read(state);
  stream.finish();
}

/// Of removing the old checkpoint, the last calls of a save: a failure there is none of the save.
constexpr std::size_t kRemovals = 6;

/// What is there once a save has stopped anywhere is whole, and the next save works.
/// @return its version.
std::uint32_t expect_old_or_new(MemoryFiles& files) {
  const std::uint32_t version = read_version(files, "/run");
  EXPECT_TRUE(version == 1 || version == 2) << version;
  save(files, 3);
  EXPECT_EQ(read_version(files, "/run"), 3U);
  EXPECT_EQ(files.names("/run").size(), 1U) << "something is left over";
  return version;
}

TEST(Publication, SurvivesTheLossOfPowerAfterEveryCall) {
  const std::size_t changes = changes_of_a_second_save();
  ASSERT_GT(changes, 12U);
  std::set<std::uint32_t> seen;
  for (std::size_t stop = 0; stop <= changes; ++stop) {
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      SCOPED_TRACE("stopped at change " + std::to_string(stop) + ", seed " + std::to_string(seed));
      MemoryFiles files;
      save(files, 1);
      files.stop_at(files.changes() + stop);
      const auto failure = testing::caught([&] { save(files, 2); });
      ASSERT_EQ(failure.has_value(), stop + kRemovals < changes);
      const auto lost = seed == 0   ? MemoryFiles::Lost::all
                        : seed == 1 ? MemoryFiles::Lost::none
                                    : MemoryFiles::Lost::some;
      const auto after = files.after_power_loss(lost, seed);
      const std::uint32_t version = expect_old_or_new(*after);
      EXPECT_TRUE(failure || version == 2) << "save() had returned";
      seen.insert(version);
      if (HasFailure()) return;
    }
  }
  EXPECT_EQ(seen, (std::set<std::uint32_t>{1, 2})) << "both outcomes were to be seen";
}

TEST(Publication, IsDurableOnceItReturns) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    MemoryFiles files;
    save(files, 1);
    save(files, 2);
    const auto after =
        files.after_power_loss(seed == 0 ? MemoryFiles::Lost::all : MemoryFiles::Lost::some, seed);
    EXPECT_EQ(read_version(*after, "/run"), 2U) << "seed " << seed;
  }
}

/// Made a moment ago by the user, or by a save that was killed.
TEST(Publication, IsDurableInAFolderThatWasNot) {
  MemoryFiles files;
  ASSERT_EQ(files.make_folder("/run").error, 0);
  save(files, 1);
  EXPECT_EQ(read_version(*files.after_power_loss(MemoryFiles::Lost::all, 0), "/run"), 1U);
}

TEST(Publication, OfTheFirstCheckpointIsAllOrNothing) {
  for (std::size_t stop = 0; stop < changes_of_a_second_save(); ++stop) {
    MemoryFiles files;
    files.stop_at(stop);
    (void)testing::caught([&] { save(files, 1); });
    const auto after = files.after_power_loss(MemoryFiles::Lost::some, stop);
    try {
      EXPECT_EQ(read_version(*after, "/run"), 1U);
    } catch (const Error& failure) {
      EXPECT_EQ(failure.code(), ErrorCode::io_failure) << failure.what();
    }
    save(*after, 2);
    EXPECT_EQ(read_version(*after, "/run"), 2U);
  }
}

class FailingCall : public ::testing::TestWithParam<int> {};

TEST_P(FailingCall, LeavesTheOldCheckpointAndTheNextSaveWorks) {
  const std::size_t changes = changes_of_a_second_save();
  std::size_t failures = 0;
  for (std::size_t number = 0; number < changes; ++number) {
    SCOPED_TRACE("change " + std::to_string(number));
    MemoryFiles files;
    save(files, 1);
    files.fail_at(files.changes() + number, GetParam());
    const auto failure = testing::caught([&] { save(files, 2); });
    if (failure) {
      failures += 1;
      const auto code = GetParam() == EIO ? ErrorCode::io_failure : ErrorCode::no_space;
      EXPECT_EQ(failure->code(), code) << failure->what();
      EXPECT_NE(std::string(failure->what()).find("'/"), std::string::npos) << failure->what();
      EXPECT_EQ(files.names("/run"), std::set<std::string>{"save-00000001"});
      EXPECT_EQ(read_version(files, "/run"), 1U) << failure->what();
    }
    (void)expect_old_or_new(files);
  }
  EXPECT_EQ(failures + kRemovals, changes);
}

INSTANTIATE_TEST_SUITE_P(Errors, FailingCall, ::testing::Values(ENOSPC, EIO, EDQUOT));

TEST(Publication, NamesThePlaceTheErrnoAndTheRemedyOfAWrite) {
  std::size_t writes = 0;
  for (std::size_t number = 0; number < changes_of_a_second_save(); ++number) {
    MemoryFiles failing;
    failing.fail_at(number, EIO);
    const auto failure = testing::caught([&] { save(failing, 1); });
    const std::string text = failure ? failure->what() : "";
    if (text.find("cannot write") == std::string::npos) continue;
    writes += 1;
    EXPECT_NE(text.find(" bytes behind the first "), std::string::npos) << text;
    EXPECT_NE(text.find("(errno 5)"), std::string::npos) << text;
    EXPECT_NE(text.find("use another one"), std::string::npos) << text;
  }
  EXPECT_GE(writes, 3U);
}

TEST(Publication, SaysWhereACheckpointIsThatCouldNotBeTakenBack) {
  std::size_t told = 0;
  for (std::size_t stop = 0; stop < changes_of_a_second_save(); ++stop) {
    MemoryFiles stopping;
    save(stopping, 1);
    stopping.stop_at(stopping.changes() + stop);
    const auto failure = testing::caught([&] { save(stopping, 2); });
    const std::string text = failure ? failure->what() : "";
    const auto after = stopping.after_power_loss(MemoryFiles::Lost::none, 0);
    const bool there = failure && after->names("/run").contains("save-00000002");
    EXPECT_EQ(there, text.find("'/run/save-00000002' is complete") != std::string::npos) << text;
    told += there ? 1 : 0;
  }
  EXPECT_EQ(told, 1U);
}

TEST(Publication, FinishesThroughInterruptionsAndShortCalls) {
  for (const std::size_t most : {1U, 7U, 4096U}) {
    MemoryFiles files;
    files.hinder(most);
    save(files, 1);
    save(files, 2);
    EXPECT_EQ(read_version(files, "/run"), 2U);
  }
}

TEST(Publication, RefusesWhatDoesNotFitBeforeItWrites) {
  MemoryFiles files;
  save(files, 1);
  const auto before = files.all_files("/run");
  files.room = 1000;
  expect_error(ErrorCode::no_space,
               {"needs", "1000 are free", "bytes short", "Nothing was written"},
               [&] { save(files, 2); });
  SmallState state(2);
  expect_error(ErrorCode::no_space, {"1000 are free"},
               [&] { ckpt::require_space(files, "/run", state.request()); });
  expect_error(ErrorCode::no_space, {"1000 are free"},
               [&] { ckpt::require_space(files, "/not_there_yet", state.request()); });
  files.room = INT64_MAX;
  files.largest_file = 4096;
  expect_error(ErrorCode::no_space, {"files of at most 4096", "ulimit -f"},
               [&] { save(files, 2); });
  EXPECT_EQ(files.all_files("/run"), before);
  files.largest_file = INT64_MAX;
  save(files, 2);
  EXPECT_EQ(read_version(files, "/run"), 2U);
}

TEST(Publication, LetsOneSaverInAtATime) {
  MemoryFiles files;
  const ckpt::Publication first(files, "/run");
  expect_error(ErrorCode::io_failure, {"'/run' is being saved into"}, [&] { save(files, 1); });
}

TEST(Publication, RefusesToSaveIntoACheckpoint) {
  MemoryFiles files;
  save(files, 1);
  SmallState state(2);
  expect_error(ErrorCode::io_failure, {"'/run/save-00000001' is a checkpoint itself"},
               [&] { ckpt::save(files, "/run/save-00000001", state.request(), state); });
  EXPECT_EQ(read_version(files, "/run"), 1U);
}

TEST(Publication, CountsOnAfterTheLargestNumberAndRefusesAfterTheLast) {
  MemoryFiles files;
  files.make_folder("/run");
  files.make_folder("/run/save-00000009");
  files.make_folder("/run/save-10");        // no name of ours
  files.make_folder("/run/save-0000000x");  // nor this
  files.make_folder("/run/save-0000000000000099");
  save(files, 1, 0);
  EXPECT_EQ(read_version(files, "/run/save-00000010"), 1U);
  files.make_folder("/run/save-999999999999999999");
  expect_error(ErrorCode::io_failure, {"no number is left"}, [&] { save(files, 2); });
}

TEST(Publication, NamesAFolderWithoutACheckpoint) {
  MemoryFiles files;
  files.make_folder("/run");
  expect_error(ErrorCode::io_failure, {"no checkpoint in '/run'"},
               [&] { read_version(files, "/run"); });
  expect_error(ErrorCode::io_failure, {"'/elsewhere'", "No such file"},
               [&] { read_version(files, "/elsewhere"); });
}

class BrokenSource final : public ckpt::StateSource {
 public:
  void read(std::size_t parameter, std::size_t /*stream*/, Sink /*sink*/) override {
    if (parameter == 1) throw Error(ErrorCode::device_failure, "the device is gone");
  }
};

TEST(Publication, PassesOnWhatTheSourceThrows) {
  for (const std::uint32_t threads : {1U, 4U}) {
    MemoryFiles files;
    save(files, 1);
    SmallState state(2);
    auto request = state.request();
    request.threads = threads;
    request.manifest.parameters.erase(request.manifest.parameters.begin());
    request.manifest.parameters.front().elems = 0;
    request.manifest.parameters.insert(request.manifest.parameters.begin(),
                                       request.manifest.parameters.front());
    BrokenSource source;
    expect_error(ErrorCode::device_failure, {"is gone"},
                 [&] { ckpt::save(files, "/run", request, source); });
    EXPECT_EQ(files.names("/run"), (std::set<std::string>{"save-00000001"}));
  }
}

/// Its first stream fails while the others are amid theirs, so that they stop because of it.
class FailingFirst final : public ckpt::StateSource {
 public:
  void read(std::size_t parameter, std::size_t stream, Sink sink) override {
    if (parameter == 0 && stream == 0) throw Error(ErrorCode::device_failure, "the cause");
    for (;;) sink(std::as_bytes(std::span("x")).first(1));
  }
};

TEST(Publication, ReportsTheCauseAndNotThatOthersStopped) {
  for (int i = 0; i < 300; ++i) {
    MemoryFiles files;
    SmallState state(1);
    auto request = state.request();
    request.threads = 4;
    request.file_bytes = 1;
    FailingFirst source;
    expect_error(ErrorCode::device_failure, {"the cause"},
                 [&] { ckpt::save(files, "/run", request, source); });
    if (HasFailure()) return;
  }
}

TEST(Publication, WritesFilesOnSeveralThreads) {
  MemoryFiles one;
  MemoryFiles several;
  SmallState state(1);
  auto request = state.request();
  ckpt::save(one, "/run", request, state);
  request.threads = 4;
  ckpt::save(several, "/run", request, state);
  EXPECT_EQ(one.all_files("/run"), several.all_files("/run"));
  EXPECT_GE(one.all_files("/run").size(), 3U);
}

TEST(Publication, WritesNoMoreFilesThanAReaderCanOpen) {
  ckpt::SaveRequest request = SmallState(1).request();
  request.file_bytes = 1;
  auto& parameters = request.manifest.parameters;
  const ckpt::ParameterEntry one = parameters.front();
  parameters.clear();
  for (std::size_t i = 0; i < 3 * ckpt::kMaxSavedFiles; ++i) {
    parameters.push_back(one);
    parameters.back().names = {"p" + std::to_string(i)};
  }
  EXPECT_LE(ckpt::plan_files(request).size(), ckpt::kMaxSavedFiles);
  EXPECT_GT(ckpt::plan_files(request).size(), ckpt::kMaxSavedFiles / 4);
}

/// Another's files are not a save's to remove.
TEST(Publication, RemovesALinkAndNotWhatItLeadsTo) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("run"));
  std::filesystem::create_directories(folder.path("precious"));
  std::ofstream(folder.path("precious/file")) << "1";
  std::filesystem::create_directory_symlink(folder.path("precious"),
                                            folder.path("run/.saving-00000009"));
  SmallState state(1);
  ckpt::save(ckpt::posix_file_system(), folder.path("run"), state.request(), state);
  EXPECT_TRUE(std::filesystem::exists(folder.path("precious/file")));
  EXPECT_FALSE(std::filesystem::is_symlink(folder.path("run/.saving-00000009")));
}

/// In pieces of any size it is the same checkpoint, to the byte.
TEST(Publication, InPiecesIsTheSame) {
  SmallState state(3);
  MemoryFiles whole;
  ckpt::save(whole, "/run", state.request(), state);
  for (const std::size_t most : {4U, 1000U, 4096U, 1U << 20}) {
    MemoryFiles files;
    ckpt::SaveRequest request = state.request();
    const ckpt::Manifest manifest = request.manifest;
    ckpt::PiecewiseSave save(files, "/run", std::move(request));
    for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
      for (std::size_t k = 0; k < manifest.parameters[i].streams.size(); ++k) {
        state.read(i, k, [&](std::span<const std::byte> bytes) {
          for (; !bytes.empty(); bytes = bytes.subspan(std::min(most, bytes.size()))) {
            save.write(bytes.first(std::min(most, bytes.size())));
          }
        });
      }
    }
    EXPECT_EQ(save.finish(manifest.digest).folder, "/run/save-00000001");
    EXPECT_TRUE(files.all_files("/run") == whole.all_files("/run")) << most;
  }
}

TEST(Publication, InPiecesThatAreNotFinishedLeavesTheOneBefore) {
  MemoryFiles files;
  save(files, 1);
  {
    SmallState state(2);
    ckpt::PiecewiseSave begun(files, "/run", state.request());
    state.read(0, 0, [&](std::span<const std::byte> bytes) { begun.write(bytes); });
  }
  EXPECT_EQ(files.names("/run"), std::set<std::string>{"save-00000001"});
  EXPECT_EQ(read_version(files, "/run"), 1U);
}

TEST(Publication, RefusesNamesThatAreNotUtf8) {
  MemoryFiles files;
  SmallState state(1);
  auto request = state.request();
  request.manifest.parameters[0].names[0] = "w\xFF";
  expect_error(ErrorCode::invalid_argument, {"not valid UTF-8", "rename"},
               [&] { ckpt::save(files, "/run", request, state); });
  EXPECT_TRUE(files.names("/").empty());
}

}  // namespace
}  // namespace outboard
