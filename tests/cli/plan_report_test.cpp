// SPDX-License-Identifier: Apache-2.0
// What `outboard plan` answers: sums that agree, speeds that make sense, text that fits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/command_line.hpp"
#include "cli/plan.hpp"

namespace outboard::cli {
namespace {

PlanRequest request_for(const char* model) {
  PlanRequest request;
  request.shape = preset_shape(model);
  request.host_bytes = std::uint64_t{256} << 30;
  request.link = {25e9, Known::given};
  request.host_update = {2e9, Known::given};
  request.compute = {150e12, Known::given};
  request.device_memory = {900e9, Known::assumed};
  return request;
}

TEST(PlanReport, SixteenBytesOfAParameterAreAllSomewhere) {
  for (const char* model : {"gpt2", "qwen2.5-0.5b", "llama-2-7b"}) {
    PlanRequest request = request_for(model);
    request.gradient_ring = false;
    request.activation_bytes = 0;
    const MemoryPlan plan = plan_bytes(request.shape, request);
    const auto n = static_cast<double>(count_parameters(request.shape));
    EXPECT_NEAR(static_cast<double>(sum_of(plan.device)) / n, 4.0, 0.01) << model;
    EXPECT_NEAR(static_cast<double>(sum_of(plan.pinned)) / n, 2.0, 0.01) << model;
    EXPECT_NEAR(static_cast<double>(sum_of(plan.pageable)) / n, 12.0, 0.01) << model;
    EXPECT_EQ(static_cast<double>(plan.without_offload), 16.0 * n) << model;
    request.dtype = DType::f32;
    const MemoryPlan wide = plan_bytes(request.shape, request);
    EXPECT_NEAR(static_cast<double>(sum_of(wide.device)) / n, 8.0, 0.01) << model;
    EXPECT_NEAR(static_cast<double>(sum_of(wide.pinned)) / n, 4.0, 0.01) << model;
  }
}

TEST(PlanReport, WorkIsTwoFlopsForwardAndFourBackward) {
  PlanRequest request = request_for("llama-2-7b");
  request.compute = {1e6, Known::given};  // a FLOP in a microsecond
  request.checkpointing = false;
  const auto sum = [](const std::vector<PlannedWork>& work) {
    double us = 0.0;
    for (const PlannedWork& piece : work) us += piece.us;
    return us;
  };
  const PlannedModel plain = plan_work(request, 1);
  EXPECT_NEAR(sum(plain.backward), 2 * sum(plain.forward), 1e-6 * sum(plain.forward));
  request.checkpointing = true;
  const PlannedModel again = plan_work(request, 1);
  const double head = 2.0 * 4096 * 32000;  // outside the layers: not computed again
  EXPECT_NEAR(sum(again.backward), 3 * sum(again.forward) - head, 1e-6 * sum(again.forward));
  request.micro_batches = 4;
  const PlannedModel four = plan_work(request, 4);
  EXPECT_NEAR(sum(four.forward), sum(again.forward), 1e-6 * sum(again.forward));
  EXPECT_NEAR(sum(four.backward), 4 * sum(again.backward) + 3 * sum(again.forward),
              1e-6 * sum(again.backward));
}

TEST(PlanReport, AnswersHangTogether) {
  const PlanReport report = make_plan_report(request_for("qwen2.5-0.5b"));
  EXPECT_LE(report.best.step_us, report.host.step_us);
  EXPECT_LE(report.best.device_state_bytes, report.free_bytes);
  double before = 0.0;
  for (const SpeedRow& row : report.speed) {
    EXPECT_GE(row.fraction(), before) << row.tokens << ": more compute hides more";
    before = row.fraction() * 0.98;
  }
  ASSERT_TRUE(report.tokens_to_hide.has_value());
  PlanRequest there = report.request;
  there.tokens = report.tokens_to_hide.value_or(0);
  const PlanReport hidden = make_plan_report(there);
  EXPECT_GE(hidden.without_offload_us / hidden.host.step_us, 0.95);
  there.tokens = there.tokens * 9 / 10;
  const PlanReport exposed = make_plan_report(there);
  EXPECT_LT(exposed.without_offload_us / exposed.host.step_us, 0.95);
  EXPECT_GT(report.largest, report.largest_without_offload);
  const MemoryPlan largest = plan_bytes(stand_in(report.largest), report.request);
  EXPECT_LE(sum_of(largest.device), report.request.device_bytes);
  EXPECT_LE(largest.host(), report.request.host_bytes);
}

TEST(PlanReport, ShowsHowAShareSplitsTheState) {
  PlanRequest request = request_for("llama-2-7b");
  request.gradient_ring = false;
  const PlanReport all_host = make_plan_report(request);
  EXPECT_EQ(all_host.asked.step_us, all_host.host.step_us);
  for (const double fraction : {0.25, 0.5, 1.0}) {
    request.device_fraction = fraction;
    const PlanReport report = make_plan_report(request);
    EXPECT_NEAR(report.asked.device_fraction, fraction, 0.02);
    const auto state = static_cast<double>(kStateBytes * report.parameters);
    const auto host = static_cast<double>(sum_of(report.memory.pageable));
    EXPECT_NEAR(host / state, 1.0 - fraction, 0.021);
    const auto more = static_cast<double>(sum_of(report.memory.device)) -
                      static_cast<double>(sum_of(all_host.memory.device));
    EXPECT_NEAR(more / state, fraction, 0.021);
    EXPECT_NEAR(more, static_cast<double>(report.asked.device_state_bytes), 1e-3 * state);
    EXPECT_EQ(report.host.step_us, all_host.host.step_us);
    EXPECT_LT(report.asked.bytes_up, report.host.bytes_up);
    EXPECT_EQ(report.largest, all_host.largest) << "it is that with all state on the host";
    const std::string text = plan_text(report);
    EXPECT_NE(text.find("as asked"), std::string::npos);
    EXPECT_NE(text.find("% on the device"), std::string::npos);
  }
}

std::uint64_t bytes_named(const std::vector<Bytes>& entries, const std::string& purpose) {
  const auto found = std::ranges::find(entries, purpose, &Bytes::purpose);
  return found == entries.end() ? 0 : found->bytes;
}

TEST(PlanReport, CountsTheGradientsOfResidentStateWhole) {
  PlanRequest request = request_for("llama-2-7b");
  const std::uint64_t all = 2 * count_parameters(request.shape);
  const std::uint64_t ring = plan_bytes(request.shape, request).device.at(1).bytes;
  for (const double fraction : {0.0, 0.25, 0.5, 1.0}) {
    request.device_fraction = fraction;
    const MemoryPlan plan = plan_bytes(request.shape, request);
    const std::uint64_t whole = bytes_named(plan.device, "gradients of resident state");
    const std::uint64_t rest = bytes_named(plan.device, "gradients, ring of two layers");
    // A parameter is read where it is if any of it is resident.
    EXPECT_NEAR(static_cast<double>(whole) / static_cast<double>(all), fraction, 0.03);
    EXPECT_LE(rest, ring);
    EXPECT_LE(whole + rest, all);
    EXPECT_EQ(rest == 0, fraction == 1.0);
  }
  request.gradient_ring = false;
  const MemoryPlan plan = plan_bytes(request.shape, request);
  EXPECT_EQ(bytes_named(plan.device, "gradients, all"), all);
  EXPECT_EQ(bytes_named(plan.device, "gradients of resident state"), 0U);
}

TEST(PlanReport, CountsWhatTheEngineAddsUp) {
  PlanRequest request = request_for("llama-2-7b");
  request.micro_batches = 4;
  const std::uint64_t n = count_parameters(request.shape);
  const PlanReport trainer = make_plan_report(request);
  EXPECT_EQ(bytes_named(trainer.memory.device, "gradients, all"), 2 * n)
      << "the trainer's sums stay where they are";
  request.accumulate = Accumulate::host;
  const PlanReport report = make_plan_report(request);
  const auto sums =
      static_cast<double>(bytes_named(report.memory.pageable, "gradient accumulator"));
  EXPECT_NEAR(sums, 4.0 * static_cast<double>(n), 1e-4 * sums);
  EXPECT_GT(bytes_named(report.memory.pinned, "bounce ring"), 0U);
  EXPECT_GT(bytes_named(report.memory.device, "gradients, ring of two layers"), 0U);
  EXPECT_EQ(report.host.bytes_down, 4 * 2 * n);
  EXPECT_EQ(report.host.bytes_up, 2 * n);
  EXPECT_NEAR(report.host.forward_us + report.host.backward_us,
              trainer.host.forward_us + trainer.host.backward_us, 1e-6 * trainer.host.step_us);
  EXPECT_NEAR(report.host.update_us, trainer.host.update_us * (1 + 4.0 / 3),
              0.01 * report.host.update_us);
  request.device_fraction = 0.5;
  const MemoryPlan half = plan_bytes(request.shape, request);
  EXPECT_NEAR(static_cast<double>(bytes_named(half.device, "engine: gradient accumulator")),
              sums / 2, 0.03 * sums);
  EXPECT_EQ(bytes_named(half.device, "gradients of resident state"), 0U);
  const std::string text = plan_text(report);
  EXPECT_NE(text.find("the engine adds up"), std::string::npos);
  EXPECT_NE(text.find("gradient accumulator"), std::string::npos);
  EXPECT_NE(text.find("updates and sums on the host"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(plan_json(report)).at("request").at("accumulate"), "host");
}

TEST(PlanReport, LeavesRoomForAllGradientsWhereAnyStateMayBeResident) {
  PlanRequest request = request_for("qwen2.5-0.5b");
  const std::uint64_t with_ring = make_plan_report(request).free_bytes;
  request.device_fraction = 0.5;
  EXPECT_EQ(make_plan_report(request).free_bytes, with_ring) << "whatever is asked";
  request.gradient_ring = false;
  request.device_fraction = 0.0;
  const PlanReport report = make_plan_report(request);
  EXPECT_EQ(report.free_bytes, with_ring);
  EXPECT_EQ(report.free_bytes, request.device_bytes - sum_of(report.memory.device));
}

TEST(PlanReport, SchedulesWaitLongerTheLessTheyOverlap) {
  PlanRequest request = request_for("llama-2-7b");
  double before = 0.0;
  for (const char* name : {"open", "exact", "blocking", "serial"}) {
    request.schedule = schedule_named(name);
    EXPECT_STREQ(name_of(request.schedule), name);
    const PlanReport report = make_plan_report(request);
    EXPECT_GE(report.host.step_us, before) << name;
    before = report.host.step_us;
    EXPECT_NE(plan_text(report).find("step, " + std::string(name)), std::string::npos);
  }
  EXPECT_THROW((void)schedule_named("hasty"), UsageError);
}

TEST(PlanReport, NamesWhatLimits) {
  PlanRequest request = request_for("gpt2");
  request.tokens = 512;
  request.host_update.value = 1e8;
  const JudgedStep slow_update = make_plan_report(request).host;
  EXPECT_GT(slow_update.exposed_update_us, 0.0);
  EXPECT_EQ(limit_of(slow_update), "the update on the host");
  request.host_update.value = 1e12;
  request.link.value = 1e9;
  EXPECT_NE(limit_of(make_plan_report(request).host).find("the link"), std::string::npos);
  request.link.value = 1e13;
  request.tokens = 65536;
  EXPECT_EQ(limit_of(make_plan_report(request).host), "compute: offload is hidden");
}

/// An update that would fit behind backward and does not fit behind the next forward: all of it
/// waits for the norm of the gradient that arrives last, that of the embedding.
TEST(PlanReport, NamesTheGateWhereItHoldsUpdatesThatBackwardWouldHide) {
  PlanRequest request = request_for("llama-2-7b");
  request.link.value = 1e12;
  const JudgedStep fast = make_plan_report(request).host;
  request.host_update.value =
      static_cast<double>(count_parameters(request.shape)) / (0.8e-6 * fast.backward_us);
  const PlanReport report = make_plan_report(request);
  EXPECT_GT(report.host.exposed_us(), 0.05 * report.host.step_us);
  EXPECT_NE(limit_of(report.host).find("the gate"), std::string::npos) << limit_of(report.host);
  EXPECT_NE(plan_text(report).find("limited by the gate"), std::string::npos);
  for (const Schedule schedule : {Schedule::open, Schedule::serial}) {
    request.schedule = schedule;
    const JudgedStep other = make_plan_report(request).host;
    EXPECT_EQ(limit_of(other).find("the gate"), std::string::npos) << limit_of(other);
  }
}

TEST(PlanReport, TextFitsAHundredColumnsAndJsonSaysTheSame) {
  const PlanReport report = make_plan_report(request_for("llama-2-7b"));
  const std::string text = plan_text(report);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  for (const char* part :
       {"6,738,415,616 parameters", "device memory", "host memory, pinned", "master weight",
        "exp_avg_sq", "gradient and weight staging", "file: masters and moments", "buckets",
        "gradients down", "weights up", "save beside training", "limited by", "tokens a step",
        "largest model", "assumed; give --hbm"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
  const auto json = nlohmann::json::parse(plan_json(report));
  EXPECT_EQ(json.at("parameters"), report.parameters);
  EXPECT_EQ(json.at("device").at("total"), sum_of(report.memory.device));
  EXPECT_EQ(json.at("host_step").at("step_us"), report.host.step_us);
  EXPECT_EQ(json.at("speed").size(), report.speed.size());
  EXPECT_EQ(json.at("request").at("link_bytes_per_s").at("from"), "given");
}

TEST(PlanReport, SaysWhetherASaveHoldsUpAStep) {
  PlanRequest request = request_for("llama-2-7b");
  request.disk = {4e9, Known::given};
  request.snapshot_bytes = 0;
  const PlanReport none = make_plan_report(request);
  const double all = static_cast<double>(none.memory.checkpoint);
  EXPECT_NEAR(none.save.save_us, all / 4e3, 1.0);
  EXPECT_EQ(none.save.copied_bytes, 0U);
  EXPECT_NEAR(none.save.wait_us, none.save.save_us - none.asked.step_us, 1.0);
  EXPECT_NE(plan_text(none).find("the next step's update waits"), std::string::npos);
  request.snapshot_bytes = none.memory.checkpoint;
  const PlanReport enough = make_plan_report(request);
  EXPECT_EQ(enough.save.wait_us, 0.0);
  EXPECT_GT(enough.save.copy_us, 0.0);
  EXPECT_NEAR(static_cast<double>(enough.save.copied_bytes), all - 4e3 * enough.asked.step_us, 2.0);
  EXPECT_NE(plan_text(enough).find("no update waits for the disk"), std::string::npos);
  request.disk.value = 1e15;
  EXPECT_EQ(make_plan_report(request).save.copied_bytes, 0U);
  EXPECT_EQ(nlohmann::json::parse(plan_json(none)).at("save").at("wait_us"), none.save.wait_us);
}

TEST(PlanWords, AreSettledOrRefused) {
  PlanWords words;
  words.params = "1m";
  words.dram = 56.0;
  words.host_memory = "1.5GiB";
  const PlanRequest request = settle(words);
  EXPECT_EQ(request.host_update.value, 2e9);
  EXPECT_EQ(request.host_bytes, 1'610'612'736U);
  EXPECT_EQ(request.link.known, Known::assumed);
  EXPECT_FALSE(has_sums(request));
  words.accumulate = "host";
  EXPECT_TRUE(has_sums(settle(words)));
  words.dtype = "f32";
  EXPECT_EQ(settle(words).host_update.value, 1.75e9);  // 32 bytes for each parameter
  words.model = "gpt2";
  EXPECT_THROW((void)settle(words), UsageError);
  words.model.clear();
  words.config = "/nowhere/config.json";
  words.params.clear();
  EXPECT_THROW((void)settle(words), UsageError);
  for (const char* bad : {"", "x", "12QiB", "-1", "0", "1e30"}) {
    EXPECT_THROW((void)parse_bytes(bad), UsageError) << bad;
  }
}

TEST(MeasureHostUpdate, GivesARate) {
  const double rate = measure_host_update();
  EXPECT_TRUE(std::isfinite(rate));
  EXPECT_GT(rate, 0.0);
}

}  // namespace
}  // namespace outboard::cli
