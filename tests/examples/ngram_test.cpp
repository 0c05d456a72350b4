// SPDX-License-Identifier: Apache-2.0
#include "common/ngram.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "data.hpp"
#include "text_support.hpp"

namespace text {
namespace {

using example::NGram;
using Sequence = std::vector<std::uint16_t>;

NGram counted(std::size_t order, std::size_t vocabulary, const std::vector<Sequence>& runs) {
  NGram ngram(order, vocabulary);
  for (const Sequence& run : runs) ngram.count(run);
  return ngram;
}

Sequence as_run(std::string_view text) {
  return {text.begin(), text.end()};
}

TEST(NGram, CountsByHand) {
  const NGram model = counted(1, 256, {as_run("abacab")});
  // After a: b twice, c once; two kinds. b alone: (2 + 1) / (6 + 256).
  EXPECT_DOUBLE_EQ(model.probability(as_run("a"), 'b'), (2.0 + 2.0 * 3.0 / 262.0) / 5.0);
  EXPECT_DOUBLE_EQ(model.probability(as_run("a"), 'z'), (2.0 * 1.0 / 262.0) / 5.0);
  EXPECT_DOUBLE_EQ(model.probability(as_run("z"), 'a'), 4.0 / 262.0) << "nothing follows z";
}

/// P(token | before) straight from its definition.
double brute_force(const std::vector<Sequence>& runs, double vocabulary, Sequence before,
                   std::uint16_t token) {
  std::map<std::uint16_t, double> after;
  double n = 0.0;
  for (const Sequence& run : runs) {
    for (std::size_t i = before.size(); i < run.size(); ++i) {
      const auto from = run.begin() + static_cast<std::ptrdiff_t>(i - before.size());
      if (!std::equal(before.begin(), before.end(), from)) continue;
      ++after[run[i]];
      ++n;
    }
  }
  const auto types = static_cast<double>(after.size());
  const double count = after[token];
  if (before.empty()) return (count + 1.0) / (n + vocabulary);
  const double shorter = brute_force(runs, vocabulary, {before.begin() + 1, before.end()}, token);
  return n == 0.0 ? shorter : (count + types * shorter) / (n + types);
}

TEST(NGram, IsTheFormulaForEveryContextOfASmallText) {
  const std::vector<Sequence> runs{{0, 1, 0, 2, 0, 1, 3, 0, 1, 0}, {3, 3, 1, 0, 1}, {2}};
  const NGram ngram = counted(2, 5, runs);
  for (std::uint16_t a = 0; a < 5; ++a) {
    for (std::uint16_t b = 0; b < 5; ++b) {
      double sum = 0.0;
      for (std::uint16_t token = 0; token < 5; ++token) {
        const double p = ngram.probability(Sequence{4, a, b}, token);
        EXPECT_NEAR(p, brute_force(runs, 5, {a, b}, token), 1e-15) << a << b << token;
        sum += p;
      }
      EXPECT_NEAR(sum, 1.0, 1e-12) << a << b;
    }
    EXPECT_NEAR(ngram.probability(Sequence{a}, 1), brute_force(runs, 5, {a}, 1), 1e-15);
  }
  EXPECT_NEAR(ngram.probability({}, 3), brute_force(runs, 5, {}, 3), 1e-15);
}

TEST(NGram, ProbabilitiesOfTextAddUpToOne) {
  const std::string text = test::made_up_text(5000, 1);
  const NGram model = counted(2, 256, {as_run(text.substr(0, 2000)), as_run(text.substr(2500))});
  for (const char* before : {"", "t", "th", "qq", " a", "z"}) {
    double sum = 0.0;
    for (std::uint16_t byte = 0; byte < 256; ++byte) {
      const double p = model.probability(as_run(before), byte);
      EXPECT_GT(p, 0.0);
      sum += p;
    }
    EXPECT_NEAR(sum, 1.0, 1e-12) << before;
  }
}

TEST(NGram, CountsNothingAcrossRuns) {
  const NGram apart = counted(1, 256, {as_run("xy"), as_run("xy")});
  EXPECT_EQ(apart.probability(as_run("y"), 'x'), apart.probability(as_run("Q"), 'x'));
}

TEST(Order1, CountsNothingThatIsHeldOut) {
  std::string text = test::made_up_text(60000, 3);
  const Corpus corpus = make_corpus(test::as_bytes(text));
  for (const example::Range& range : corpus.held_out) {
    std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(range.begin), range.size(), '#');
  }
  const Corpus other = make_corpus(test::as_bytes(text));
  const auto positions = held_out_positions(corpus, 16, 3000);
  EXPECT_EQ(order1_loss(count_pairs(other), corpus, positions),
            order1_loss(count_pairs(corpus), corpus, positions));
}

TEST(Order1, LossIsTheMeanOfTheLogarithmsAndBeatsAddingOne) {
  const Corpus corpus = make_corpus(test::as_bytes(test::made_up_text(45000, 2)));
  const NGram model = count_pairs(corpus);
  std::vector<std::vector<double>> counts(256, std::vector<double>(256, 1.0));
  for (const example::Range& range : corpus.train) {
    for (std::size_t i = range.begin + 1; i < range.end; ++i) {
      counts[corpus.bytes[i - 1]][corpus.bytes[i]] += 1.0;
    }
  }
  const auto positions = held_out_positions(corpus, 16, SIZE_MAX);
  double add_one = 0.0, mean = 0.0;
  for (const std::size_t at : positions) {
    const std::uint8_t before = corpus.bytes[at - 1], byte = corpus.bytes[at];
    double sum = 0.0;
    for (const double count : counts[before]) sum += count;
    add_one -= std::log(counts[before][byte] / sum);
    mean -= std::log(model.probability(Sequence{before}, byte));
  }
  mean /= static_cast<double>(positions.size());
  EXPECT_NEAR(order1_loss(model, corpus, positions), mean, 1e-12);
  EXPECT_LT(mean, add_one / static_cast<double>(positions.size()));
}

}  // namespace
}  // namespace text
