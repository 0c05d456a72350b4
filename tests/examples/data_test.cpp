// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "text_support.hpp"

namespace text {
namespace {

namespace fs = std::filesystem;
using example::DataError;
using example::is_text;
using example::Range;
using test::made_up_text;

constexpr std::size_t kBlock = Corpus::kBlock;

class Data : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("outboard_data_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path write(const std::string& name, std::string_view content) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  static std::string error_of(const std::vector<fs::path>& paths) {
    try {
      (void)load_corpus(paths);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  fs::path folder_;
};

TEST_F(Data, WhatIsNoFileIsRefusedByNameAtOnce) {
  const fs::path pipe = folder_ / "pipe", loop = folder_ / "loop";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);  // nobody will ever write to it
  fs::create_symlink("loop", loop);
  EXPECT_TRUE(has(error_of({pipe}), "cannot read " + pipe.string())) << error_of({pipe});
  EXPECT_TRUE(has(error_of({"/dev/null"}), "cannot read /dev/null"));
  EXPECT_TRUE(has(error_of({loop}), loop.string() + ": Too many levels")) << error_of({loop});
}

TEST_F(Data, ReadsFilesAndFoldersInTheOrderOfTheirNames) {
  write("folder/b.txt", made_up_text(30000, 1));
  write("folder/a/z.txt", made_up_text(20000, 2));
  const auto single = write("single.txt", made_up_text(10000, 3));
  const Corpus corpus = load_corpus({single, folder_ / "folder"});
  const std::string expected =
      made_up_text(10000, 3) + made_up_text(20000, 2) + made_up_text(30000, 1);
  EXPECT_EQ(std::string(corpus.bytes.begin(), corpus.bytes.end()), expected);
  EXPECT_EQ(corpus.files, 3u);
}

TEST_F(Data, PassesOverWhatIsNotTextInAFolderAndCountsIt) {
  write("folder/a.txt", made_up_text(50000, 1));
  write("folder/binary", std::string("\0\1\2", 3));
  write("folder/latin1", "caf\xE9");
  write("folder/empty", "");
  fs::create_symlink(folder_ / "folder/a.txt", folder_ / "folder/again.txt");
  const Corpus corpus = load_corpus({folder_ / "folder"});
  EXPECT_EQ(corpus.bytes.size(), 50000u);
  EXPECT_EQ(corpus.skipped_files, 3u);
}

TEST_F(Data, NamesWhatIsWrong) {
  const std::string missing = error_of({folder_ / "nowhere.txt"});
  EXPECT_TRUE(has(missing, "nowhere.txt does not exist")) << missing;
  const std::string empty = error_of({write("empty.txt", "")});
  EXPECT_TRUE(has(empty, "empty.txt is empty")) << empty;
  const std::string binary = error_of({write("binary", std::string("a\0b", 3))});
  EXPECT_TRUE(has(binary, "binary is not UTF-8")) << binary;
  const std::string brief = error_of({write("brief.txt", "hello")});
  EXPECT_TRUE(has(brief, "has 5 bytes; at least 40960")) << brief;
  fs::create_directories(folder_ / "none");
  const std::string none = error_of({folder_ / "none"});
  EXPECT_TRUE(has(none, "0 files read")) << none;
}

TEST(Text, KnowsWellFormedUtf8) {
  const auto text = [](std::string_view s) { return is_text(test::as_bytes(s)); };
  EXPECT_TRUE(text("plain"));
  EXPECT_TRUE(text("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \xF4\x8F\xBF\xBF"));
  EXPECT_FALSE(text("\xE9t\xE9")) << "Latin-1";
  EXPECT_FALSE(text("\xC0\x80")) << "overlong";
  EXPECT_FALSE(text("\xE0\x80\x80")) << "overlong";
  EXPECT_FALSE(text("\xED\xA0\x80")) << "surrogate";
  EXPECT_FALSE(text("\xF4\x90\x80\x80")) << "beyond U+10FFFF";
  EXPECT_FALSE(text("ab\xE2\x82")) << "cut off";
  EXPECT_FALSE(text(std::string_view("a\0b", 3))) << "NUL";
}

TEST(Split, EveryTenthBlockIsHeldOutAndNothingIsLost) {
  for (const std::size_t size :
       {10 * kBlock, 10 * kBlock + 1, 19 * kBlock + 7, 20 * kBlock - 1, 35 * kBlock}) {
    const Corpus corpus = make_corpus(test::as_bytes(made_up_text(size, 1)));
    std::vector<int> owners(size);
    for (const Range& range : corpus.train) {
      for (std::size_t i = range.begin; i < range.end; ++i) owners[i] += 1;
    }
    for (const Range& range : corpus.held_out) {
      for (std::size_t i = range.begin; i < range.end; ++i) owners[i] += 2;
    }
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(owners[i], i / kBlock % 10 == 9 ? 2 : 1) << "byte " << i << " of " << size;
    }
    EXPECT_EQ(corpus.train_size() + corpus.held_out_size(), size);
  }
  EXPECT_THROW((void)make_corpus(test::as_bytes(made_up_text(10 * kBlock - 1, 1))), DataError);
}

/// A corpus whose bytes say where they are: 1 in training blocks, 2 in held-out ones.
Corpus marked_corpus(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = i / kBlock % 10 == 9 ? 2 : 1;
  return make_corpus(bytes);
}

TEST(Sampler, NeverShowsAHeldOutByte) {
  const Corpus corpus = marked_corpus(25 * kBlock + 11);
  TrainSampler sampler(corpus, 16, 7);
  std::vector<std::uint8_t> rows(17 * 512);
  for (int batch = 0; batch < 100; ++batch) {
    sampler.fill(rows);
    for (const std::uint8_t byte : rows) ASSERT_EQ(byte, 1);
  }
}

TEST(Sampler, ReachesBothEndsOfEveryRangeAndIsReplayable) {
  std::vector<std::uint8_t> bytes(20 * kBlock);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i / 400);
  const Corpus corpus = make_corpus(bytes);
  TrainSampler sampler(corpus, 4, 9), again(corpus, 4, 9), other(corpus, 4, 10);
  std::set<std::uint8_t> seen;
  std::vector<std::uint8_t> rows(5 * 4096), same(rows.size()), different(rows.size());
  sampler.fill(rows);
  again.fill(same);
  other.fill(different);
  seen.insert(rows.begin(), rows.end());
  EXPECT_EQ(rows, same);
  EXPECT_NE(rows, different);
  for (const Range& range : corpus.train) {
    EXPECT_TRUE(seen.count(bytes[range.begin]));
    EXPECT_TRUE(seen.count(bytes[range.end - 1]));
  }
}

TEST(HeldOut, PositionsHaveAHeldOutContextAndAreSpread) {
  const Corpus corpus = marked_corpus(40 * kBlock);
  const auto all = held_out_positions(corpus, 16, SIZE_MAX);
  EXPECT_EQ(all.size(), 4 * (kBlock - 16));
  const auto some = held_out_positions(corpus, 16, 1000);
  ASSERT_EQ(some.size(), 1000u);
  std::set<std::size_t> blocks;
  for (const std::size_t at : some) {
    for (std::size_t i = at - 16; i <= at; ++i) ASSERT_EQ(corpus.bytes[i], 2) << at;
    blocks.insert(at / kBlock);
  }
  EXPECT_EQ(blocks.size(), 4u);
  EXPECT_EQ(std::set(some.begin(), some.end()).size(), some.size());
}

}  // namespace
}  // namespace text
