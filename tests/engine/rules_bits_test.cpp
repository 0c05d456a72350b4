// SPDX-License-Identifier: Apache-2.0
// What bits_test.cpp shows of AdamW in FP16 for every rule and every dtype: each way of running
// changes nothing, alone.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/every_rule.hpp"
#include "engine/splits.hpp"
#include "engine/trajectory.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSteps = 6;
constexpr std::uint64_t kOverflowStep = 3;

std::uint32_t infinity_bits(DType dtype) {
  return dtype == DType::f16 ? 0x7C00U : dtype == DType::bf16 ? 0x7F80U : 0x7F800000U;
}

/// Sizes on both sides of a block of the norm's tree and of a bucket.
TinyOptions base_options(const TinyRule& rule, const std::vector<DType>& dtypes) {
  TinyOptions options;
  options.device.memory_bytes = std::size_t{16} << 20;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.initial_scale = 64.0, .growth_interval = 2};
  options.config.bucket_bytes = std::size_t{1} << 20;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:2 pu:1";
  options.rules = {rule};
  const std::array<std::uint64_t, 6> sizes = {4097, 1, 20003, 0, 31, 8192};
  add_parameters(options, sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    options.parameters[i].dtype = dtypes[i % dtypes.size()];
  }
  const DType hit = options.parameters[2].dtype;
  options.injected = {
      {.step = kOverflowStep, .parameter = 2, .element = 17777, .bits = infinity_bits(hit)}};
  // One parameter sits out every third step.
  options.has_gradient = [](std::uint64_t step, std::uint32_t i) {
    return i != 5 || step % 3 != 1;
  };
  return options;
}

struct Way {
  std::string name;
  std::function<void(TinyOptions&)> apply;
};

std::vector<Way> ways() {
  const auto many_threads = [](TinyOptions& o) { o.config.host.threads_per_node = 3; };
  const auto two_nodes = [](TinyOptions& o) {
    o.config.host.synthetic_topology = "numa:2 core:1 pu:1";
  };
  const auto virtual_time = [](TinyOptions& o) {
    o.device.mode = sim::Mode::virtual_time;
    o.device.seed = 5;
    o.device.rates = {.link_down_bytes_per_s = 1e9,
                      .link_up_bytes_per_s = 2e9,
                      .device_bytes_per_s = 1e10,
                      .host_elems_per_s = {1e9, 3e8}};
    o.device.max_random_delay = sim::Duration(20000);
  };
  const auto resident = [](TinyOptions& o) { o.config.placement = Placement::device_resident; };
  const auto streamed = [](TinyOptions& o) { o.config.placement = Placement::device_streamed; };
  const auto small_buckets = [](TinyOptions& o) { o.config.bucket_bytes = 8192; };
  const auto bounce = [](TinyOptions& o) { o.config.pinned_slots = 1; };
  const auto sums = [](TinyOptions& o) { o.config.accumulate = Accumulate::host; };
  const auto share = [](TinyOptions& o, double wanted) {
    o.config.placement = Placement::fraction;
    o.config.device_fraction = wanted;
    round_fraction(o);
  };
  return {{"resident", resident},
          {"streamed", streamed},
          {"buckets, streamed, virtual, checks",
           [=](TinyOptions& o) {
             small_buckets(o);
             streamed(o);
             virtual_time(o);
             o.config.check_waits = true;
           }},
          {"buckets, streamed, sums",
           [=](TinyOptions& o) {
             small_buckets(o);
             streamed(o);
             sums(o);
           }},
          {"serial", [](TinyOptions& o) { o.config.schedule = Schedule::serial; }},
          {"blocking", [](TinyOptions& o) { o.config.schedule = Schedule::blocking; }},
          {"threads", many_threads},
          {"nodes", two_nodes},
          {"buckets", small_buckets},
          {"virtual", virtual_time},
          {"sums", sums},
          {"checks", [](TinyOptions& o) { o.config.check_waits = true; }},
          {"buckets, nodes, threads, bounce, virtual",
           [=](TinyOptions& o) {
             small_buckets(o);
             two_nodes(o);
             many_threads(o);
             bounce(o);
             virtual_time(o);
           }},
          {"buckets, nodes, threads, no flags",
           [=](TinyOptions& o) {
             small_buckets(o);
             two_nodes(o);
             many_threads(o);
             o.device.stream_memory_ops = false;
           }},
          {"buckets, a third resident",
           [=](TinyOptions& o) {
             small_buckets(o);
             share(o, 0.3);
           }},
          {"buckets, 0.7 resident, no flags, virtual, checks",
           [=](TinyOptions& o) {
             small_buckets(o);
             o.config.check_waits = true;
             o.device.stream_memory_ops = false;
             virtual_time(o);
             share(o, 0.7);
           }},
          {"buckets, half resident, sums, virtual, bounce",
           [=](TinyOptions& o) {
             small_buckets(o);
             sums(o);
             bounce(o);
             virtual_time(o);
             share(o, 0.5);
           }},
          {"buckets, resident, sums, virtual", [=](TinyOptions& o) {
             small_buckets(o);
             resident(o);
             sums(o);
             virtual_time(o);
           }}};
}

/// Most digests are left out: steps overlap then.
void expect_every_way(const TinyOptions& base, const Trajectory& reference) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    TinyOptions options = base;
    way.apply(options);
    if (options.config.placement == Placement::device_streamed && has_lamb(options)) continue;
    const Trajectory seen = run_trajectory(std::move(options), {.steps = kSteps, .digests = 4});
    EXPECT_EQ(first_difference(reference, seen), "");
  }
}

void expect_same_bits(const TinyRule& rule, const std::vector<DType>& dtypes) {
  const TinyOptions base = base_options(rule, dtypes);
  const Trajectory reference = run_trajectory(base, {.steps = kSteps});
  ASSERT_TRUE(reference[kOverflowStep].skipped);
  ASSERT_FALSE(reference[0].skipped);
  ASSERT_GT(reference[0].grad_norm, 1.0) << "clipping has no effect";
  ASSERT_NE(reference[0].loss, reference[1].loss) << "weights never move";
  expect_every_way(base, reference);
}

class RuleBits : public ::testing::TestWithParam<NamedRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, RuleBits, ::testing::ValuesIn(every_rule()),
                         [](const auto& test) { return test.param.name; });

TEST_P(RuleBits, AreTheSameInEveryDType) {
  for (const DType dtype : kEveryDType) {
    SCOPED_TRACE(dtype_name(dtype));
    expect_same_bits(GetParam().group, {dtype});
  }
}

TEST_P(RuleBits, AreTheSameOfMixedDTypesRandomRoundingAndAnAverage) {
  expect_same_bits({GetParam().group.rule, random_with_average()},
                   {DType::bf16, DType::f32, DType::f16});
}

/// Groups of every rule in one engine: some have streams that others lack.
TinyOptions all_rules_together() {
  TinyOptions options = base_options({AdamW{}}, {DType::bf16, DType::f16, DType::f32});
  options.rules.clear();
  for (const NamedRule& rule : every_rule()) options.rules.push_back(rule.group);
  options.rules.back().options = random_with_average();
  for (int copies = 0; copies < 2; ++copies) {
    for (const TinyParameter& parameter : base_options({AdamW{}}, {DType::f16}).parameters) {
      options.parameters.push_back(parameter);
      options.parameters.back().name += std::to_string(copies);
    }
  }
  for (std::size_t i = 0; i < options.parameters.size(); ++i) {
    options.parameters[i].group = static_cast<std::uint32_t>(i % options.rules.size());
  }
  return options;
}

TEST(MixedRules, GiveTheSameBitsEveryWay) {
  const TinyOptions base = all_rules_together();
  const Trajectory reference = run_trajectory(base, {.steps = kSteps});
  expect_every_way(base, reference);
}

/// A parameter's state does not depend on which other rules the engine has.
TEST(MixedRules, LeaveEachParameterWhatItIsAlone) {
  const TinyOptions together = all_rules_together();
  // Parameter 5 is the first of Lion: 8,192 elements of f32; on its own it is the first.
  TinyOptions options = together;
  options.parameters = {together.parameters[5]};
  options.parameters[0].group = 0;
  options.rules = {together.rules[5]};
  options.injected.clear();
  options.config.max_grad_norm = 0.0;
  options.has_gradient = nullptr;
  // The same gradients for the same parameter, whatever its index.
  const auto gradient = [](const GradientPoint& at) { return mixed_unit(at.step, 5, at.element); };
  options.gradient = gradient;
  TinyOptions rest = together;
  rest.injected.clear();
  rest.config.max_grad_norm = 0.0;
  rest.has_gradient = nullptr;
  rest.gradient = gradient;
  TinyTrainer one(options);
  TinyTrainer many(rest);
  // Initial values depend on the index: give both the same.
  for (auto* trainer : {&one, &many}) {
    TinyParameter& parameter = trainer->options().parameters[trainer == &one ? 0 : 5];
    parameter.initial.assign(parameter.elems, 0.5F);
    parameter.give_master = true;
    trainer->start();
    trainer->run(4);
  }
  EXPECT_EQ(one.state(0), many.state(5));
}

TEST(RuleBitsGuard, AnotherSeedOfRoundingIsAnotherTrajectory) {
  TinyOptions options = base_options({AdamW{.lr = 1e-3}, random_with_average()}, {DType::bf16});
  options.injected.clear();
  const Trajectory one = run_trajectory(options, {.steps = 3});
  options.rules[0].options.seed += 1;
  EXPECT_NE(first_difference(one, run_trajectory(options, {.steps = 3})), "");
}

}  // namespace
}  // namespace outboard::testing
