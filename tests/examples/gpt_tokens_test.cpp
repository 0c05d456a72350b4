// SPDX-License-Identifier: Apache-2.0
#include "tokens.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "text_support.hpp"

namespace gpt {
namespace {

namespace fs = std::filesystem;
using example::DataError;

std::string made_up(std::size_t bytes) {
  return text::test::made_up_text(bytes, 1);
}

class GptTokens : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("outboard_tokens_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path write(const std::string& name, std::string_view content) {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  fs::path write_tokens(const std::string& name, const std::vector<Token>& tokens) {
    std::string bytes;
    for (const Token token : tokens) {
      bytes += static_cast<char>(token & 0xFF);
      bytes += static_cast<char>(token >> 8);
    }
    return write(name, bytes);
  }
  static void expect_error(const TokenRequest& request, const std::string& part) {
    try {
      (void)load_tokens(request);
      ADD_FAILURE() << "accepted, expected: " << part;
    } catch (const DataError& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find(part), std::string::npos) << what;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    }
  }
  fs::path folder_;
};

TEST_F(GptTokens, BytesAreTheText) {
  const std::string text = made_up(50000);
  const Tokens tokens = load_tokens({.paths = {write("a.txt", text)}});
  ASSERT_EQ(tokens.values.size(), text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    ASSERT_EQ(tokens.values[i], static_cast<std::uint8_t>(text[i]));
  }
  EXPECT_EQ(tokens.split.train_size() + tokens.split.held_out_size(), text.size());
}

TEST_F(GptTokens, ReadsFilesAndFoldersOfNumbers) {
  std::vector<Token> all;
  for (std::size_t i = 0; i < 60000; ++i) all.push_back(static_cast<Token>(i * 7919 % 50257));
  fs::create_directories(folder_ / "set");
  write_tokens("set/2.bin", {all.begin() + 30000, all.end()});
  write_tokens("set/1.bin", {all.begin(), all.begin() + 30000});
  write("set/notes.txt", "not tokens");
  const Tokens tokens =
      load_tokens({.paths = {folder_ / "set"}, .kind = TokenKind::uint16, .vocab = 50257});
  EXPECT_EQ(tokens.values, all);
  EXPECT_EQ(tokens.files, 2u);
  EXPECT_EQ(tokens.skipped_files, 1u);
}

TEST_F(GptTokens, NamesWhatIsWrong) {
  const auto text = [](const fs::path& path) { return TokenRequest{.paths = {path}}; };
  const auto numbers = [](const fs::path& path, std::size_t vocab) {
    return TokenRequest{.paths = {path}, .kind = TokenKind::uint16, .vocab = vocab};
  };
  expect_error(text(folder_ / "none.txt"), "none.txt does not exist");
  expect_error(text(write("empty.txt", "")), "empty.txt is empty");
  expect_error(text(write("image.png", std::string("\x89PNG\0\1", 6))), "image.png is not UTF-8");
  expect_error(text(write("short.txt", "hello")), "has 5 bytes; at least 40960");
  expect_error(numbers(folder_ / "none.bin", 9), "none.bin does not exist");
  expect_error(numbers(write("empty.bin", ""), 9), "empty.bin is empty");
  expect_error(numbers(write("odd.bin", "abc"), 9), "odd.bin has 3 bytes, an odd number");
  expect_error(numbers(write_tokens("big.bin", {1, 2, 300}), 300),
               "big.bin has token 300 at position 2, and the vocabulary has 300");
  fs::create_directories(folder_ / "bare");
  expect_error(numbers(folder_ / "bare", 9), "no tokens found");
  TokenRequest wide = text(write("text.txt", made_up(50000)));
  wide.context = 8192;
  expect_error(wide, "has 50000 bytes; a context of 8192 needs 81930");
}

TEST(GptSplit, HoldsOutBlocksThatTakeAWholeRow) {
  const example::Split split = split_tokens(200000, TokenKind::bytes, 8000);
  ASSERT_FALSE(split.held_out.empty());
  for (const example::Range& range : split.held_out) EXPECT_GE(range.size(), 8001u);
}

/// Tokens that say where they are: 1 in training blocks, 2 in held-out ones.
Tokens marked(std::size_t count, std::size_t context) {
  Tokens tokens;
  tokens.values.assign(count, 1);
  tokens.split = split_tokens(count, TokenKind::bytes, context);
  for (const example::Range& range : tokens.split.held_out) {
    for (std::size_t i = range.begin; i < range.end; ++i) tokens.values[i] = 2;
  }
  return tokens;
}

TEST(GptRows, TrainingAndHeldOutNeverMix) {
  const Tokens tokens = marked(120000, 100);
  RowSampler sampler(tokens, 100, 5);
  std::vector<Token> rows(101 * 500);
  sampler.fill(rows);
  EXPECT_EQ(std::set(rows.begin(), rows.end()), std::set<Token>{1});
  const auto held_out = held_out_rows(tokens, 100, SIZE_MAX);
  EXPECT_EQ(std::set(held_out.begin(), held_out.end()), std::set<Token>{2});
  EXPECT_EQ(held_out.size() % 101, 0u);
  EXPECT_GE(held_out.size() / 101 * 100, tokens.split.held_out_size() - 100 * 4);
}

TEST(RunSampler, DrawsEveryRunThatFitsAndNoOther) {
  const std::vector<example::Range> ranges{{0, 5}, {7, 9}, {20, 24}, {30, 33}};
  example::RunSampler sampler(ranges, 3, 11);
  std::map<std::size_t, int> drawn;
  for (int i = 0; i < 6000; ++i) ++drawn[sampler.draw()];
  ASSERT_EQ(drawn.size(), 6u) << "seed 11";
  for (const std::size_t begin : {0u, 1u, 2u, 20u, 21u, 30u}) {
    EXPECT_NEAR(drawn[begin], 1000, 150) << "seed 11, run at " << begin;
  }
}

TEST(GptRows, HeldOutRowsAreAsManyAsAskedAndPredictNothingTwice) {
  Tokens tokens = marked(120000, 10);
  for (std::size_t i = 0; i < tokens.values.size(); ++i) tokens.values[i] = static_cast<Token>(i);
  const auto rows = held_out_rows(tokens, 10, 400);
  ASSERT_EQ(rows.size(), 40u * 11);
  std::set<Token> targets;
  for (std::size_t at = 0; at < rows.size(); at += 11) {
    for (std::size_t i = 1; i < 11; ++i) targets.insert(rows[at + i]);
  }
  EXPECT_EQ(targets.size(), 400u);
  EXPECT_EQ(held_out_rows(tokens, 10, 1).size(), 11u) << "at least one row";
}

TEST(GptNGram, LossIsTheMeanOverAllTargetsOfTheRows) {
  example::NGram ngram(2, 5);
  ngram.count(std::vector<Token>{0, 1, 0, 2, 0, 1, 3, 0, 1, 0});
  const std::vector<Token> rows{0, 1, 0, 2, 3, 1};  // two rows of context 2
  const auto p = [&ngram](std::vector<Token> before, Token token) {
    return ngram.probability(before, token);
  };
  const double expected = -0.25 * (std::log(p({0}, 1)) + std::log(p({0, 1}, 0)) +
                                   std::log(p({2}, 3)) + std::log(p({2, 3}, 1)));
  EXPECT_NEAR(ngram_loss(ngram, rows, 2), expected, 1e-14);
}

TEST(GptNGram, CountsTheTrainingPartOnlyAndLongerContextsHelp) {
  Tokens tokens;
  const std::string text = made_up(100000);
  for (const char c : text) tokens.values.push_back(static_cast<std::uint8_t>(c));
  tokens.split = split_tokens(tokens.values.size(), TokenKind::bytes, 64);
  const auto rows = held_out_rows(tokens, 64, 4096);
  const double order1 = ngram_loss(count_training(tokens, 1, 256), rows, 64);
  const double order2 = ngram_loss(count_training(tokens, 2, 256), rows, 64);
  EXPECT_LT(order2, order1 - 0.1);
  Tokens other = tokens;  // the same with other held-out text
  for (const example::Range& range : other.split.held_out) {
    std::fill(other.values.begin() + static_cast<std::ptrdiff_t>(range.begin),
              other.values.begin() + static_cast<std::ptrdiff_t>(range.end), Token{'#'});
  }
  EXPECT_EQ(ngram_loss(count_training(other, 2, 256), rows, 64), order2);
}

}  // namespace
}  // namespace gpt
