// SPDX-License-Identifier: Apache-2.0
/// The calls that bring parameters between steps: what they do at other times, what they refuse,
/// and what they tell.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/late_models.hpp"
#include "support/expect_error.hpp"
#include "support/log_lines.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

/// Trainers whose parameters a test adds by name.
class LateTrainer : public ::testing::TestWithParam<Flavour> {
 protected:
  void SetUp() override {
    Config config = GetParam().apply({});
    config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
    config.log = log_.sink();
    trainer_.emplace(config, GetParam().device());
    group_ = engine().add_group({.lr = 0.1});
    first_ = t().add("first", std::vector<float>(4096, 1.0F), group_);
    second_ = t().add("second", std::vector<float>(4096, 1.0F), group_);
    engine().commit();
  }
  ManualTrainer& t() { return trainer_.value(); }
  Engine& engine() { return *t().engine; }
  void step_first() {
    engine().wait(first_, t().stream);
    t().give(first_, std::vector<float>(4096, 0.5F));
    EXPECT_TRUE(engine().step().applied());
  }
  ParameterSpec spec(const std::string& name, void* data) {
    ParameterSpec out;
    out.name = name;
    out.elems = 4096;
    out.data = data;
    out.group = group_;
    return out;
  }
  LogLines log_;
  std::optional<ManualTrainer> trainer_;
  GroupId group_;
  ParameterId first_, second_;
};
INSTANTIATE_TEST_SUITE_P(Ways, LateTrainer, ::testing::ValuesIn(whole_ways()),
                         [](const auto& test) { return flavour_name(test.param); });

TEST_P(LateTrainer, CommitsAgainWithoutNewsForNothing) {
  step_first();
  engine().synchronize();  // the step's uploads are counted as they start
  const std::uint64_t syncs = engine().stats().host_device_syncs;
  const sim::Counters before = t().gpu.counters();
  engine().add_group({.lr = 0.2});  // has no parameter
  engine().commit();
  engine().commit();
  const sim::Counters after = t().gpu.counters();
  EXPECT_EQ(after.copies_to_device, before.copies_to_device);
  EXPECT_EQ(after.host_waits, before.host_waits);
  EXPECT_EQ(engine().stats().host_device_syncs, syncs);
  engine().wait(first_, t().stream);
  t().give(first_, std::vector<float>(4096, 0.5F));
  engine().commit();  // even now
  EXPECT_TRUE(engine().step().applied());
}

TEST_P(LateTrainer, IsToldToCommitAParameterBeforeItIsUsed) {
  void* const data = t().make(std::vector<float>(4096, 1.0F));
  const ParameterId late = engine().add_parameter(spec("late", data));
  const auto refused = [&](const char* call, auto&& body) {
    SCOPED_TRACE(call);
    expect_error(ErrorCode::protocol_error, {call, "'late'", "not committed", "commit()"}, body);
  };
  refused("gradient_ready()", [&] { engine().gradient_ready(late, data, t().stream); });
  refused("wait()", [&] { engine().wait(late, t().stream); });
  refused("wait_gradient_taken()", [&] { engine().wait_gradient_taken(late, t().stream); });
  refused("weights_changed()", [&] { engine().weights_changed(late, t().stream); });
  refused("read_state()", [&] { engine().read_state(late, {}); });
  refused("state_streams()", [&] { (void)engine().state_streams(late); });
  refused("step_count()", [&] { (void)engine().step_count(late); });
  step_first();
  engine().commit();
  EXPECT_EQ(engine().step_count(late), 0U);
  EXPECT_EQ(engine().step_count(first_), 1U);
}

TEST_P(LateTrainer, IsRefusedWhileAGradientIsPending) {
  void* const data = t().make(std::vector<float>(4096, 1.0F));
  engine().add_parameter(spec("in time", data));
  t().give(first_, std::vector<float>(4096, 0.5F));
  const auto refused = [&](const char* call, auto&& body) {
    SCOPED_TRACE(call);
    expect_error(ErrorCode::protocol_error, {call, "'first'", "pending", "step()"}, body);
  };
  void* const other = t().make(std::vector<float>(4096, 1.0F));
  refused("add_group()", [&] { engine().add_group({}); });
  refused("add_parameter() of 'late'", [&] { engine().add_parameter(spec("late", other)); });
  refused("commit()", [&] { engine().commit(); });
  EXPECT_TRUE(engine().step().applied());
  engine().commit();
  engine().add_parameter(spec("late", other));
  engine().commit();
  EXPECT_EQ(engine().ledger().trainable_elems, 4U * 4096U);
}

TEST_P(LateTrainer, RefusesBadWeightsByNameAndGoesOnWithout) {
  step_first();
  const std::uint64_t digest = engine().state_digest();
  std::vector<float> values(4096, 1.0F);
  values[7] = std::numeric_limits<float>::quiet_NaN();
  void* const good = t().make(std::vector<float>(4096, 1.0F));
  void* const bad = t().make(values);
  const ParameterId late = engine().add_parameter(spec("late", good));
  engine().add_parameter(spec("broken", bad));
  const sim::Counters before = t().gpu.counters();
  const MemoryLedger ledger = engine().ledger();
  for (int i = 0; i < 2; ++i) {
    expect_error(ErrorCode::invalid_argument,
                 {"'broken'", "NaN at element 7", "not committed: 'late', 'broken'"},
                 [&] { engine().commit(); });
  }
  const sim::Counters after = t().gpu.counters();
  EXPECT_EQ(after.live_allocations, before.live_allocations);
  EXPECT_EQ(after.live_streams, before.live_streams);
  EXPECT_EQ(after.live_events, before.live_events);
  EXPECT_EQ(after.live_registrations, before.live_registrations);
  EXPECT_EQ(engine().ledger().to_string(), ledger.to_string());
  EXPECT_EQ(engine().state_digest(), digest);
  step_first();
  expect_error(ErrorCode::protocol_error, {"'late'", "not committed"},
               [&] { engine().gradient_ready(late, good, t().stream); });
  values[7] = 1.0F;
  upload<std::byte>(t().gpu, bad, to_elements(values, DType::f16), t().stream);
  t().gpu.synchronize();
  engine().commit();
  engine().wait(first_, t().stream);
  t().give(first_, std::vector<float>(4096, 0.0F));
  engine().gradient_ready(late, t().make(std::vector<float>(4096, 1.0F)), t().stream);
  EXPECT_TRUE(engine().step().applied());
  EXPECT_EQ(engine().step_count(late), 1U);
  EXPECT_EQ(engine().step_count(first_), 3U);
}

TEST_P(LateTrainer, TakesASecondNameForAWeightThatIsThere) {
  step_first();
  EXPECT_EQ(engine().add_parameter(spec("tied", t().weight(first_))), first_);
  EXPECT_EQ(engine().step_count(first_), 1U) << "nothing to commit";
  const GroupId other = engine().add_group({.lr = 0.3});
  ParameterSpec wrong = spec("wrong", t().weight(first_));
  wrong.group = other;
  expect_error(ErrorCode::invalid_argument, {"'wrong'", "'first'", "another group"},
               [&] { engine().add_parameter(wrong); });
  expect_error(ErrorCode::invalid_argument, {"'tied'", "registered already"},
               [&] { engine().add_parameter(spec("tied", t().weight(second_))); });
}

TEST_P(LateTrainer, TakesEmptyParametersAlone) {
  step_first();
  ParameterSpec empty = spec("empty", nullptr);
  empty.elems = 0;
  const ParameterId id = engine().add_parameter(empty);
  engine().commit();
  step_first();
  engine().wait(id, t().stream);
  engine().gradient_ready(id, nullptr, t().stream);
  EXPECT_EQ(engine().step_count(id), 0U);
  EXPECT_EQ(engine().step_count(first_), 2U);
}

TEST_P(LateTrainer, SaysWhatCameAndForgetsNoStatistics) {
  step_first();
  engine().synchronize();
  const StepStats before = engine().stats();
  log_.clear();
  const GroupId group = engine().add_group(Lion{.lr = 0.25});
  ParameterSpec late = spec("late", t().make(std::vector<float>(4096, 1.0F)));
  late.group = group;
  engine().add_parameter(late);
  engine().commit();
  const StepStats after = engine().stats();
  EXPECT_EQ(after.steps_applied, before.steps_applied);
  EXPECT_EQ(after.copies_down, before.copies_down);
  EXPECT_EQ(after.weight_bytes_up, before.weight_bytes_up);
  // In real time the ring may still have been busy when the uploads had passed.
  if (GetParam().mode == sim::Mode::virtual_time) {
    EXPECT_EQ(after.update_busy_us, before.update_busy_us);
  }
  const std::string text = log_.all();
  EXPECT_NE(text.find("commit(): parameter 'late' more"), std::string::npos) << text;
  EXPECT_NE(text.find("Lion"), std::string::npos) << text;
  EXPECT_EQ(text.find("group 0"), std::string::npos) << text;
  EXPECT_NE(engine().describe().find("3 buckets"), std::string::npos) << engine().describe();
}

TEST_P(LateTrainer, TakesMastersOfItsOwn) {
  step_first();
  std::vector<float> values(4096);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = mixed_unit(1, 2, i) + 0.0001F;
  ParameterSpec late = spec("late", t().make(std::vector<float>(4096, 7.0F)));
  late.master = values;
  const ParameterId id = engine().add_parameter(late);
  engine().commit();
  std::vector<float> master(4096);
  engine().read_state(id, {.master = master});
  EXPECT_EQ(master, values);
  const auto words = download<std::uint16_t>(t().gpu, late.data, 4096, t().stream);
  EXPECT_EQ(float_of_bits(words[9], DType::f16),
            float_of_bits(bits_of_float(values[9], DType::f16), DType::f16));
}

}  // namespace
}  // namespace outboard::testing
