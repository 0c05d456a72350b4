// SPDX-License-Identifier: Apache-2.0
/// Nothing goes wrong in silence: what the log sink hears, once each, with a cause.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/flavours.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Keeps what a sink is given.
class Log {
 public:
  [[nodiscard]] LogSink sink() const {
    return [lines = lines_](LogLevel level, std::string_view text) {
      const std::lock_guard lock(lines->mutex);
      lines->entries.emplace_back(level, text);
    };
  }
  /// Lines of warning or worse that hold every one of `words`.
  [[nodiscard]] std::size_t warnings(const std::vector<std::string>& words) const {
    const std::lock_guard lock(lines_->mutex);
    return static_cast<std::size_t>(std::ranges::count_if(lines_->entries, [&](const auto& line) {
      return line.first != LogLevel::info && std::ranges::all_of(words, [&](const auto& word) {
               return line.second.find(word) != std::string::npos;
             });
    }));
  }
  [[nodiscard]] std::string all() const {
    const std::lock_guard lock(lines_->mutex);
    std::string text;
    for (const auto& line : lines_->entries) text += line.second + "\n";
    return text;
  }

 private:
  struct Lines {
    std::mutex mutex;
    std::vector<std::pair<LogLevel, std::string>> entries;
  };
  std::shared_ptr<Lines> lines_ = std::make_shared<Lines>();
};

class Reports : public ::testing::TestWithParam<Flavour> {
 protected:
  void make() {
    Config config;
    config.loss_scaling.initial_scale = 1024.0;
    config.log = log_.sink();
    trainer_.emplace(GetParam().apply(config), GetParam().device());
    group_ = engine().add_group({.lr = 100.0});
  }
  ManualTrainer& t() { return trainer_.value(); }
  Engine& engine() { return *t().engine; }
  Log log_;
  GroupId group_;
  std::optional<ManualTrainer> trainer_;
};
INSTANTIATE_TEST_SUITE_P(Ways, Reports, ::testing::ValuesIn(all_flavours()),
                         [](const auto& test) { return flavour_name(test.param); });

TEST_P(Reports, ARowOfSkippedStepsOnce) {
  make();
  const ParameterId w = t().add("layer.w", {1.0F, 1.0F, 1.0F}, group_);
  engine().commit();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(t().step({{w, {1.0F, 1.0F, kInf}}}).skipped());
  EXPECT_EQ(log_.warnings({"skipped", "layer.w", "Inf", "element 2", "512"}), 1u) << log_.all();
  EXPECT_EQ(log_.warnings({"skipped"}), 1u) << log_.all();
  EXPECT_TRUE(t().step({{w, {0.0F, 0.0F, 0.0F}}}).applied());
  EXPECT_TRUE(t().step({{w, {1.0F, kInf, 1.0F}}}).skipped());
  EXPECT_EQ(log_.warnings({"skipped", "element 1"}), 1u) << log_.all();
}

TEST_P(Reports, WeightsTooLargeForSixteenBitsOnce) {
  make();
  const ParameterId w = t().add("layer.w", {65504.0F}, group_);
  const ParameterId other = t().add("other", {1.0F}, group_);
  engine().commit();
  for (int i = 0; i < 4; ++i) t().step({{w, {-1024.0F}}, {other, {0.0F}}});
  EXPECT_EQ(log_.warnings({"layer.w", "Inf", "learning rate"}), 1u) << log_.all();
  EXPECT_EQ(log_.warnings({"other"}), 0u) << log_.all();
}

TEST_P(Reports, ABounceRingOnce) {
  make();
  t().add("large", std::vector<float>(20000, 1.0F), group_);
  engine().commit();
  const bool bounces = GetParam().pinned_slots.has_value();
  EXPECT_EQ(log_.warnings({"pinned", "bounce", "Config::pinned_slots"}), bounces ? 1u : 0u)
      << log_.all();
}

TEST_P(Reports, TheChoicesOfACommit) {
  make();
  t().add("large", std::vector<float>(20000, 1.0F), group_);
  engine().commit();
  const std::string text = engine().describe();
  for (const char* word : {"threads:", "simd:", "AdamW", "placement:"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " in\n" << text;
    EXPECT_NE(log_.all().find(word), std::string::npos) << word << " in\n" << log_.all();
  }
}

TEST_P(Reports, NothingWhenNothingIsWrong) {
  make();
  const ParameterId w = t().add("w", {1.0F}, group_);
  engine().commit();
  for (int i = 0; i < 3; ++i) t().step({{w, {1.0F}}});
  trainer_.reset();
  EXPECT_EQ(log_.warnings({}), 0u) << log_.all();
}

}  // namespace
}  // namespace outboard::testing
