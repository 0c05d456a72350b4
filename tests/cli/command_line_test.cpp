// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cli/bench_update.hpp"
#include "support/expect_error.hpp"

namespace outboard::cli {
namespace {

using outboard::testing::expect_error;

TEST(ParseCount, ReadsWholeNumbersOnly) {
  EXPECT_EQ(parse_count("1e8"), 100'000'000U);
  EXPECT_EQ(parse_count("100000"), 100'000U);
  EXPECT_EQ(parse_count("2.5e5"), 250'000U);
  for (const char* text : {"", "x", "1e8x", "0.5", "-3", "1e30", "nan", "inf"}) {
    EXPECT_THROW((void)parse_count(text), UsageError) << text;
  }
}

TEST(Settle, OneWorkloadForEachSize) {
  BenchUpdateWords words;
  words.params = {"1e6", "2e6"};
  words.grad = "bf16";
  words.rule = "lion";
  const BenchUpdate request = settle(words);
  ASSERT_EQ(request.workloads.size(), 2U);
  EXPECT_EQ(request.workloads[1].params, 2'000'000U);
  EXPECT_EQ(request.workloads[1].rule, update_bench::Rule::lion);
  EXPECT_EQ(request.workloads[1].weight, simd::Format::bf16);
  EXPECT_TRUE(request.workloads[1].alias);
}

TEST(Settle, AliasesOnlyWhereBothHaveOneSize) {
  BenchUpdateWords words;
  words.grad = "f32";
  words.weight = "f16";
  EXPECT_FALSE(settle(words).workloads[0].alias);
  words.alias = "on";
  expect_error(ErrorCode::invalid_config, {"f16 weights", "f32 gradients"},
               [&] { (void)settle(words); });
}

TEST(Settle, TheCommandGivesTheSameAgain) {
  BenchUpdateWords words;
  words.tensors = 100;
  words.subnormal = true;
  words.threads = 3;
  words.html = "somewhere/page.html";
  EXPECT_EQ(settle(words).command,
            "outboard bench update --tensors 100 --dtype f16 --rule adamw --rounding nearest "
            "--subnormal --threads 3 --repeat 11");
}

}  // namespace
}  // namespace outboard::cli
