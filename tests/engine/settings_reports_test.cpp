// SPDX-License-Identifier: Apache-2.0
/// Which algorithm runs with which numbers is said at the start, for every group, and when it
/// changes.
#include <gtest/gtest.h>

#include <string>

#include "support/log_lines.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

class SettingsReports : public ::testing::Test {
 protected:
  SettingsReports() : t_(config()) {}
  Config config() {
    Config config;
    config.log = log_.sink();
    return config;
  }
  Engine& engine() { return *t_.engine; }
  [[nodiscard]] std::size_t lines_with(const std::string& part) const {
    std::size_t count = 0;
    for (const std::string& line : log_.texts()) {
      if (line.find(part) != std::string::npos) ++count;
    }
    return count;
  }
  LogLines log_;
  ManualTrainer t_;
};

TEST_F(SettingsReports, AStartNamesAlgorithmDecayBetasAndEpsOfEveryGroup) {
  engine().add_group({.lr = 6e-4, .beta2 = 0.95, .weight_decay = 0.125});
  engine().add_group({.lr = 6e-4, .beta1 = 0.85, .eps = 1e-6});
  const std::string first =
      "group 0: AdamW, decoupled weight decay 0.125, lr 0.0006, betas 0.9 and 0.95, eps 1e-08";
  const std::string second =
      "group 1: AdamW, decoupled weight decay 0, lr 0.0006, betas 0.85 and 0.999, eps 1e-06";
  engine().commit();
  EXPECT_EQ(lines_with(first), 1u) << log_.all();
  EXPECT_EQ(lines_with(second), 1u) << log_.all();
  const std::string described = engine().describe();
  EXPECT_NE(described.find(first), std::string::npos) << described;
  EXPECT_NE(described.find(second), std::string::npos) << described;
}

TEST_F(SettingsReports, ASettingMadeBeforeTheStartIsTheOneThatIsNamed) {
  const GroupId group = engine().add_group({.beta2 = 0.95});
  engine().set_group(group, {.beta2 = 0.98});
  EXPECT_TRUE(log_.texts().empty()) << log_.all();
  engine().commit();
  EXPECT_EQ(lines_with("betas 0.9 and 0.98"), 1u) << log_.all();
  EXPECT_EQ(lines_with("betas 0.9 and 0.95"), 0u) << log_.all();
}

TEST_F(SettingsReports, AChangeOfMoreThanTheRateIsSaidOnceForEachGroup) {
  AdamW settings{.lr = 1e-3, .weight_decay = 0.1};
  const GroupId decayed = engine().add_group(settings);
  const GroupId other = engine().add_group({});
  engine().commit();
  log_.clear();
  engine().set_group(decayed, settings);
  for (int i = 0; i < 3; ++i) {
    settings.lr *= 0.5;
    engine().set_group(decayed, settings);
  }
  EXPECT_TRUE(log_.texts().empty()) << "a schedule of the rate says nothing\n" << log_.all();
  for (int i = 0; i < 3; ++i) {
    settings.weight_decay *= 0.5;
    engine().set_group(decayed, settings);
  }
  EXPECT_EQ(log_.texts().size(), 1u) << log_.all();
  EXPECT_EQ(lines_with("group 0: AdamW, decoupled weight decay 0.05, lr 0.000125"), 1u)
      << log_.all();
  engine().set_group(other, {.beta2 = 0.99});
  EXPECT_EQ(log_.texts().size(), 2u) << log_.all();
  EXPECT_EQ(lines_with("group 1: AdamW, decoupled weight decay 0, lr 0.001, betas 0.9 and 0.99"),
            1u)
      << log_.all();
  EXPECT_EQ(log_.warnings({}), 0u) << log_.all();
  // What it is now can be asked for.
  EXPECT_NE(engine().describe().find("weight decay 0.0125"), std::string::npos);
}

}  // namespace
}  // namespace outboard::testing
