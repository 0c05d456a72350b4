// SPDX-License-Identifier: Apache-2.0
// How logs are read and compared.
#include "cli/bisect.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "cli/command_line.hpp"

namespace outboard::cli {
namespace {

RunLog read(const std::string& text) {
  std::istringstream in(text);
  return read_log(in, "x.jsonl");
}

TEST(BisectLogs, TakeWhatDecidesAndNothingThatIsMeasured) {
  const RunLog log = read(R"({"step":1,"loss":5.5,"loss_bits":"0x1.6p+2","ms":3.5,"lr":0.1})"
                          "\n\n"
                          R"({"step":2,"digest":"86126beae1b25853","loss_scale":64})"
                          "\n");
  ASSERT_EQ(log.steps.size(), 2U);
  EXPECT_EQ(log.steps.at(1), (StepValues{{"loss_bits", "0x1.6p+2"}, {"lr", "0.1"}}));
  EXPECT_EQ(log.steps.at(2), (StepValues{{"digest", "86126beae1b25853"}, {"loss_scale", "64"}}));
  EXPECT_TRUE(log.notes.empty());
}

/// A run that was stopped and went on from an earlier checkpoint.
TEST(BisectLogs, TakeTheLaterOfTwoAndSayIfTheyDiffer) {
  const RunLog same = read("{\"step\":1,\"digest\":\"a\"}\n{\"step\":1,\"loss_bits\":\"b\"}\n");
  EXPECT_EQ(same.steps.at(1).size(), 2U);
  EXPECT_TRUE(same.notes.empty());
  const RunLog other = read("{\"step\":1,\"digest\":\"a\"}\n{\"step\":1,\"digest\":\"b\"}\n");
  EXPECT_EQ(other.steps.at(1).at("digest"), "b");
  ASSERT_EQ(other.notes.size(), 1U);
  EXPECT_NE(other.notes[0].find("line 2: step 1 was done before"), std::string::npos);
}

TEST(BisectLogs, MayEndInTheMiddleOfALineOnly) {
  const RunLog log = read("{\"step\":1}\n{\"step\":2,\"dig");
  EXPECT_EQ(log.steps.size(), 1U);
  ASSERT_EQ(log.notes.size(), 1U);
  EXPECT_NE(log.notes[0].find("line 2: is cut off"), std::string::npos);
  for (const char* bad : {"{\"step\":1}\n{\"st\n{\"step\":2}\n", "[]\n", "{\"step\":-1}\n", "{}\n",
                          "{\"step\":\"1\"}\n"}) {
    EXPECT_THROW((void)read(bad), UsageError) << bad;
  }
}

TEST(BisectLogs, PartAtTheFirstStepOfWhichAnythingIsUnlike) {
  const RunLog a = read(
      "{\"step\":2,\"digest\":\"a\"}\n{\"step\":3,\"loss_bits\":\"1\"}\n"
      "{\"step\":4,\"loss_bits\":\"2\"}\n{\"step\":5,\"digest\":\"c\"}\n{\"step\":9}\n");
  const RunLog b = read(
      "{\"step\":1,\"digest\":\"z\"}\n{\"step\":2,\"digest\":\"a\",\"lr\":1}\n"
      "{\"step\":3,\"loss_bits\":\"1\"}\n{\"step\":4,\"loss_bits\":\"3\"}\n"
      "{\"step\":5,\"digest\":\"d\"}\n");
  const LogComparison found = compare_logs(a, b);
  EXPECT_EQ(found.common_steps, 4U);
  EXPECT_EQ(found.digests, 2U);
  EXPECT_EQ(found.last_equal, 2U);
  ASSERT_TRUE(found.parting);
  EXPECT_EQ(found.parting->step, 4U);
  ASSERT_EQ(found.parting->values.size(), 1U);
  EXPECT_EQ(found.parting->values.at("loss_bits"), (std::pair<std::string, std::string>{"2", "3"}));
  EXPECT_FALSE(compare_logs(a, a).parting);
  EXPECT_EQ(compare_logs(a, a).last_equal, 5U);
}

}  // namespace
}  // namespace outboard::cli
