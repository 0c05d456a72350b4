// SPDX-License-Identifier: Apache-2.0
// The planned ledger against the one that an engine has after commit().
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/splits.hpp"
#include "outboard/planning.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

struct Case {
  std::string name;
  std::vector<PlannedParameter> parameters;
  std::uint32_t nodes = 1;
  Config config{};
};

const std::vector<PlannedParameter> kMixed = {
    {30'000}, {7}, {0}, {9'000, DType::bf16}, {4'096, DType::f32}, {100, DType::f32}};
const std::vector<PlannedParameter> kLarge = {{700'000, DType::f32}, {50'000}, {1'500'000},
                                              {33, DType::bf16},     {800},    {800}};

TinyOptions tiny_options(const std::vector<PlannedParameter>& parameters, const Config& config) {
  TinyOptions options;
  options.config = config;
  for (const PlannedParameter& parameter : parameters) {
    options.parameters.emplace_back();
    options.parameters.back().elems = parameter.elems;
    options.parameters.back().dtype = parameter.dtype;
  }
  return options;
}

Config with_fraction(Config config, const std::vector<PlannedParameter>& model, double wanted) {
  config.device_fraction = nearest_split(tiny_options(model, config), wanted).fraction;
  return config;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::size_t bucket_kib : {8U, 64U, 4096U}) {
    for (const std::uint32_t nodes : {1U, 2U, 3U}) {
      Config config;
      config.bucket_bytes = bucket_kib << 10;
      cases.push_back({"host", bucket_kib == 8 ? kMixed : kLarge, nodes, config});
      config.accumulate = Accumulate::host;
      config.accumulation = 4;
      cases.push_back({"host, sums", kLarge, nodes, config});
      config.pinned_slots = 3;
      cases.push_back({"host, sums, 3 slots", kLarge, nodes, config});
      config.accumulate = Accumulate::trainer;
      cases.push_back({"host, 3 slots", kMixed, nodes, config});
      config.pinned_slots = 20;
      cases.push_back({"host, 20 slots", kLarge, nodes, config});
      config.placement = Placement::fraction;
      for (const double wanted : {0.0, 0.3, 0.7, 1.0}) {
        const auto& model = bucket_kib == 8 ? kMixed : kLarge;
        cases.push_back({"fraction", model, nodes, with_fraction(config, model, wanted)});
        Config sums = config;
        sums.accumulate = Accumulate::host;
        sums.pinned_slots = wanted == 0.3 ? std::optional(2U) : std::nullopt;
        cases.push_back({"fraction, sums", kLarge, nodes, with_fraction(sums, kLarge, wanted)});
      }
      config.placement = Placement::device_resident;
      config.pinned_slots.reset();
      cases.push_back({"resident", kMixed, nodes, config});
      config.accumulate = Accumulate::host;
      cases.push_back({"resident, sums", kLarge, nodes, config});
      config.placement = Placement::device_streamed;
      cases.push_back({"streamed, sums", kLarge, nodes, config});
      config.accumulate = Accumulate::trainer;
      cases.push_back({"streamed", kMixed, nodes, config});
    }
  }
  return cases;
}

using Sums = std::map<std::tuple<std::string, MemoryPlace, std::uint32_t>, std::size_t>;

Sums sums_of(const MemoryLedger& ledger) {
  Sums sums;
  for (const LedgerEntry& entry : ledger.entries) {
    sums[{entry.purpose, entry.place, entry.node}] += entry.bytes;
  }
  return sums;
}

TEST(PlannedMemory, IsTheEnginesLedgerToTheByte) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name + ", " + std::to_string(c.config.bucket_bytes) + " bytes, " +
                 std::to_string(c.nodes) + " nodes");
    TinyOptions options = tiny_options(c.parameters, c.config);
    options.device = virtual_device();
    options.config.host.synthetic_topology = "numa:" + std::to_string(c.nodes) + " core:2 pu:1";
    options.config.host.threads_per_node = 1;
    TinyTrainer trainer(options);
    trainer.start();
    const MemoryLedger measured = trainer.engine().ledger();
    const MemoryLedger planned = plan_memory(c.parameters, c.nodes, options.config);
    EXPECT_EQ(sums_of(planned), sums_of(measured)) << planned.to_string() << measured.to_string();
    EXPECT_EQ(planned.trainable_elems, measured.trainable_elems);
  }
}

TEST(PlannedMemory, RefusesAMachineWithoutNodes) {
  EXPECT_THROW((void)plan_memory(kMixed, 0, {}), Error);
  EXPECT_THROW((void)plan_memory(kMixed, 1, {.bucket_bytes = 1}), Error);
}

TEST(PlannedStep, KeepsItsOwnAccounts) {
  PlannedModel model;
  for (std::uint32_t i = 0; i < 8; ++i) {
    model.parameters.push_back({3'000'000});
    model.forward.push_back({500, i});
    model.backward.insert(model.backward.begin(), {1000, i});
  }
  const PlanningMachine machine{.link_down_bytes_per_s = 25e9,
                                .link_up_bytes_per_s = 25e9,
                                .node_elems_per_s = {1e9, 1e9},
                                .device_elems_per_s = 50e9};
  const PlannedStep host = plan_step(model, machine, {});
  EXPECT_NEAR(host.step_us, host.forward_us + host.backward_us + host.exposed_us(), 1e-6);
  EXPECT_GE(host.bytes_down, 48'000'000U);
  EXPECT_EQ(host.bytes_up, 48'000'000U);
  EXPECT_EQ(host.resident_buckets, 0U);
  const PlannedStep serial = plan_step(model, machine, {.schedule = Schedule::serial});
  EXPECT_GT(serial.step_us, host.step_us);
  const PlannedStep all = plan_step(
      model, machine, {}, {.kind = PlannedPlacement::Kind::fraction, .device_fraction = 1.0});
  EXPECT_EQ(all.device_fraction, 1.0);
  EXPECT_EQ(all.bytes_up, 0U);
  EXPECT_EQ(all.resident_parameters, std::vector<bool>(8, true));
  EXPECT_EQ(host.resident_parameters, std::vector<bool>(8, false));
  const PlannedStep some = plan_step(
      model, machine, {}, {.kind = PlannedPlacement::Kind::fraction, .device_fraction = 0.437});
  // The fifth bucket ends within the fourth one, which counts as a whole.
  EXPECT_EQ(some.resident_parameters,
            (std::vector<bool>{true, true, true, true, false, false, false, false}));
  const PlannedPlacement through{.kind = PlannedPlacement::Kind::streamed,
                                 .device_budget_bytes = 100'000'000};
  const PlannedStep streamed = plan_step(model, machine, {}, through);
  EXPECT_EQ(streamed.streamed_buckets, streamed.buckets);
  EXPECT_EQ(streamed.device_fraction, 0.0);
  EXPECT_GE(streamed.bytes_up, 12 * 24'000'000U);
  EXPECT_EQ(streamed.resident_parameters, std::vector<bool>(8, true));
  EXPECT_LE(streamed.device_state_bytes, 100'000'000U);
  EXPECT_THROW((void)plan_step(model, machine, {},
                               {.kind = PlannedPlacement::Kind::streamed,
                                .device_budget_bytes = streamed.device_state_bytes - 1}),
               Error);
  const PlannedStep best =
      plan_step(model, machine, {},
                {.kind = PlannedPlacement::Kind::automatic, .device_budget_bytes = 100'000'000});
  EXPECT_LE(best.device_state_bytes, 100'000'000U);
  EXPECT_LE(best.step_us, host.step_us);
  EXPECT_THROW((void)plan_step(model, {.node_elems_per_s = {}}, {}), Error);
}

TEST(PlannedStep, OfSeveralMicroBatchesHasTheirWork) {
  PlannedModel model;
  for (std::uint32_t i = 0; i < 8; ++i) {
    model.parameters.push_back({3'000'000});
    model.forward.push_back({500, i});
    model.backward.insert(model.backward.begin(), {1000, i});
  }
  PlanningMachine machine{.link_down_bytes_per_s = 25e9,
                          .link_up_bytes_per_s = 25e9,
                          .node_elems_per_s = {1e9, 1e9},
                          .device_elems_per_s = 50e9};
  const Config config{.accumulation = 4, .accumulate = Accumulate::host};
  Timeline timeline;
  const PlannedStep four = plan_step(model, machine, config, {}, &timeline);
  EXPECT_NEAR(four.step_us, four.forward_us + four.backward_us + four.exposed_us(), 1e-6);
  EXPECT_NEAR(four.forward_us, 4000, 1e-9);
  EXPECT_NEAR(four.backward_us, 4 * 8000 + 3 * 4000, 1e-6);
  EXPECT_EQ(four.bytes_down, 4 * 48'000'000U);
  EXPECT_EQ(four.bytes_up, 48'000'000U);
  // 24 million parameters, updated once and added up four times, on two nodes.
  EXPECT_NEAR(four.update_us, 12e3 * (1 + 4.0 / 3), 600);
  std::size_t sums = 0;
  for (const TimelineSpan& span : timeline.spans) sums += span.kind == SpanKind::sum ? 1 : 0;
  EXPECT_EQ(sums, 4 * four.buckets);
  machine.node_sums_per_s = {1e8, 1e8};
  EXPECT_GT(plan_step(model, machine, config).exposed_gradients_us, four.exposed_gradients_us);
  machine.node_sums_per_s = {1e8};
  EXPECT_THROW((void)plan_step(model, machine, config), Error);
  // The engine holds 16 bytes for each parameter that is resident.
  machine.node_sums_per_s = {};
  const PlannedStep all = plan_step(
      model, machine, config, {.kind = PlannedPlacement::Kind::fraction, .device_fraction = 1.0});
  EXPECT_EQ(all.device_state_bytes, 16 * 24'000'000U);
  EXPECT_EQ(all.bytes_down, 8U * 32) << "the gate's scalars";
}

}  // namespace
}  // namespace outboard::testing
