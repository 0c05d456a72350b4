// SPDX-License-Identifier: Apache-2.0
/// What a step may cost: allocations, bytes on the link, waits for the device.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "engine/allocation_counter.hpp"
#include "engine/every_rule.hpp"
#include "engine/measured_models.hpp"

namespace outboard::testing {
namespace {

/// Every way, and some with sums of gradients in the engine.
std::vector<Flavour> counted_ways() {
  std::vector<Flavour> out = every_way();
  for (Flavour flavour : all_flavours()) {
    if (flavour.pinned_slots || flavour.schedule == Schedule::serial) continue;
    if (!flavour.stream_memory_ops || flavour.topology != Flavour{}.topology) continue;
    flavour.name += "_sums";
    flavour.accumulate = Accumulate::host;
    out.push_back(flavour);
  }
  out.push_back(out.back());
  out.back().name = "threads_fraction_sums";
  out.back().placement = Placement::fraction;
  out.back().device_fraction = 0.7;
  for (Flavour flavour : open_flavours()) {
    out.push_back(flavour);
    if (flavour.pinned_slots || flavour.topology != Flavour{}.topology) continue;
    flavour.name += "_sums";
    flavour.accumulate = Accumulate::host;
    out.push_back(flavour);
  }
  return out;
}

class Resources : public ::testing::TestWithParam<Flavour> {};
INSTANTIATE_TEST_SUITE_P(Ways, Resources, ::testing::ValuesIn(counted_ways()),
                         [](const auto& test) { return flavour_name(test.param); });

// --- allocations ---------------------------------------------------------------------------------

TEST(AllocationCounter, SeesOperatorNewAndMalloc) {
  if (!allocations_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  start_counting();
  void* volatile by_new = ::operator new(100);
  void* volatile by_malloc = std::malloc(10);
  const std::uint64_t counted = stop_counting();
  ::operator delete(by_new);
  std::free(by_malloc);
  EXPECT_EQ(counted, 2u);
}

/// Holds back what is queued on a stream behind it, in real time.
class Stall {
 public:
  Stall(TinyTrainer& trainer, bool wanted)
      : real_(wanted && trainer.options().device.mode == sim::Mode::threads) {
    if (!real_) return;  // virtual time runs only while somebody waits
    trainer.gpu().launch(trainer.reader(), sim::Duration{0}, [this](sim::KernelView&) {
      while (!over_) std::this_thread::yield();
      done_ = true;
    });
  }
  ~Stall() {
    over_ = true;
    while (real_ && !done_) std::this_thread::yield();
  }
  Stall(const Stall&) = delete;
  Stall& operator=(const Stall&) = delete;

 private:
  bool real_;
  std::atomic<bool> over_{false};
  std::atomic<bool> done_{false};
};

/// Steps in which every queue gets as deep as it can: all of a backward, then all uploads. Not
/// where the trainer would wait for what is held back: for a full bounce ring, for a serial step.
void warm_up(TinyTrainer& trainer) {
  const Config& config = trainer.options().config;
  for (int i = 0; i < 3; ++i) {
    {
      const bool ring = config.pinned_slots || config.accumulate == Accumulate::host;
      const Stall backward(trainer, !ring);
      trainer.forward();
      trainer.backward();
    }
    const Stall uploads(trainer, config.schedule == Schedule::exact);
    trainer.finish();
  }
  trainer.engine().synchronize();
  trainer.gpu().synchronize();
}

TEST_P(Resources, AStepAllocatesNothing) {
  if (!allocations_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  for (const std::uint32_t ring : {0u, 2u}) {
    TinyOptions options = mixed_model(GetParam());
    if (ring > 0 && reads_in_place(options.config)) continue;
    options.gradient_ring = ring;
    // A skipped step and a step with a missing gradient among those counted.
    options.injected = {{.step = 1, .parameter = 3, .element = 5},
                        {.step = 8, .parameter = 0, .element = 29999}};
    options.has_gradient = [](std::uint64_t step, std::uint32_t i) {
      return step % 4 != 3 || i != 1;
    };
    TinyTrainer trainer(options);
    trainer.start();
    warm_up(trainer);
    start_counting();
    for (int i = 0; i < 12; ++i) trainer.step();
    trainer.engine().synchronize();
    const std::uint64_t counted = stop_counting();
    EXPECT_EQ(counted, 0u) << "gradient ring " << ring << ", first:\n" << first_allocation();
    const StepStats stats = trainer.engine().stats();
    const bool open = GetParam().schedule == Schedule::open;
    EXPECT_EQ(open ? stats.steps_partial : stats.steps_skipped, 2u);
    EXPECT_EQ(stats.steps_applied, 13u);
  }
}

/// Every rule and dtype at once, one of them in two phases.
TEST_P(Resources, AStepOfEveryRuleAllocatesNothing) {
  if (!allocations_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  TinyOptions options = mixed_model(GetParam());
  options.rules.clear();
  const bool streamed = GetParam().placement == Placement::device_streamed;
  for (const NamedRule& rule : every_rule()) {
    if (streamed && std::holds_alternative<Lamb>(rule.group.rule)) continue;
    options.rules.push_back(rule.group);
  }
  options.rules.back().options = random_with_average();
  const std::vector<TinyParameter> once = options.parameters;
  options.parameters.insert(options.parameters.end(), once.begin(), once.end());
  for (std::uint32_t i = 0; i < options.parameters.size(); ++i) {
    options.parameters[i].group = i % static_cast<std::uint32_t>(options.rules.size());
    options.parameters[i].dtype = kEveryDType[i % 3];
  }
  options.config.device_fraction = GetParam().device_fraction;
  round_fraction(options);
  TinyTrainer trainer(options);
  trainer.start();
  warm_up(trainer);
  start_counting();
  for (int i = 0; i < 6; ++i) trainer.step();
  trainer.engine().set_group(trainer.group(0), AdamW{.lr = 1e-4});
  trainer.engine().synchronize();
  const std::uint64_t counted = stop_counting();
  EXPECT_EQ(counted, 0u) << "first:\n" << first_allocation();
}

/// Sums that got fewer micro-batches than announced: step() takes the norm of each.
TEST(ShortSteps, AllocateNothing) {
  if (!allocations_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  for (const Placement placement :
       {Placement::host, Placement::device_resident, Placement::device_streamed}) {
    Flavour flavour;
    flavour.placement = placement;
    flavour.accumulate = Accumulate::host;
    TinyOptions options = mixed_model(flavour);
    options.config.accumulation = 2;
    options.config.bucket_bytes = std::size_t{1} << 20;
    options.parameters.assign(400, TinyParameter{});
    for (TinyParameter& parameter : options.parameters) parameter.elems = 64;
    TinyTrainer trainer(options);
    trainer.start();
    for (int i = 0; i < 4; ++i) {
      trainer.forward();
      trainer.backward();
      trainer.backward();
      EXPECT_TRUE(trainer.finish().result.applied());
    }
    trainer.engine().synchronize();
    trainer.gpu().synchronize();
    start_counting();
    const TinyStep seen = trainer.step();
    trainer.engine().synchronize();
    const std::uint64_t counted = stop_counting();
    EXPECT_EQ(counted, 0u) << "first:\n" << first_allocation();
    EXPECT_TRUE(seen.result.applied());
  }
}

/// Each step is timed; the third moves state.
TEST(AutomaticSteps, AllocateNothingAfterAMove) {
  if (!allocations_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  TinyOptions options = mixed_model({.name = "automatic", .placement = Placement::automatic});
  options.device.rates.host_elems_per_s = {1e7};
  options.device.rates.device_bytes_per_s = 1e10;
  options.forward = options.backward = std::chrono::microseconds(100);
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(10);
  ASSERT_EQ(trainer.engine().stats().moves, 1U);
  trainer.engine().synchronize();
  start_counting();
  for (int i = 0; i < 12; ++i) trainer.step();
  trainer.engine().synchronize();
  EXPECT_EQ(stop_counting(), 0U) << first_allocation();
  EXPECT_EQ(trainer.engine().stats().moves, 1U);
}

// --- bytes on the link ---------------------------------------------------------------------------

TEST_P(Resources, AStepMovesTwoBytesEachWay) {
  TinyOptions options = mixed_model(GetParam());
  TinyTrainer trainer(options);
  trainer.start();
  trainer.step();
  trainer.engine().synchronize();
  trainer.gpu().synchronize();
  const sim::Counters before = trainer.gpu().counters();
  const StepStats stats_before = trainer.engine().stats();
  constexpr std::uint64_t kSteps = 5;
  for (std::uint64_t i = 0; i < kSteps; ++i) trainer.step();
  trainer.engine().synchronize();
  trainer.gpu().synchronize();
  const sim::Counters after = trainer.gpu().counters();
  const StepStats stats = trainer.engine().stats();

  const bool by_device = GetParam().placement != Placement::host;
  std::uint64_t host_elems = nearest_split(options, options.config.device_fraction).host_elems;
  const bool streamed = GetParam().placement == Placement::device_streamed;
  if (streamed || GetParam().placement == Placement::device_resident) host_elems = 0;
  if (GetParam().placement == Placement::fraction) {
    EXPECT_GT(host_elems, 0U);
    EXPECT_LT(host_elems, elements(options));
  }
  const std::uint64_t payload = 2 * host_elems * kSteps;
  EXPECT_EQ(stats.gradient_bytes_down - stats_before.gradient_bytes_down, payload);
  EXPECT_EQ(stats.weight_bytes_up - stats_before.weight_bytes_up, payload);
  const std::uint64_t gate = stats.gate_bytes_down - stats_before.gate_bytes_down;
  // Sums on the host have their norm taken there.
  const bool host_norm = !by_device && GetParam().accumulate == Accumulate::host;
  EXPECT_EQ(gate == 0, host_norm);
  // The norm's scalars; updates on the device also send how many weights overflowed.
  EXPECT_LE(gate, (by_device ? 32 : 24) * options.parameters.size() * kSteps);
  // Streamed state crosses the link once each way, and nothing comes twice.
  const Split all = nearest_split(options, 1.0);
  const std::uint64_t state = streamed ? 3 * sizeof(float) * all.resident_padded * kSteps : 0;
  EXPECT_EQ(stats.state_bytes_down - stats_before.state_bytes_down, state);
  EXPECT_EQ(stats.state_bytes_up - stats_before.state_bytes_up, state);
  EXPECT_EQ(after.bytes_to_host - before.bytes_to_host, payload + gate + state);
  EXPECT_EQ(after.bytes_to_device - before.bytes_to_device, payload + state);
  EXPECT_EQ(after.live_allocations, before.live_allocations);
  EXPECT_EQ(after.live_events, before.live_events);
  EXPECT_EQ(after.live_streams, before.live_streams);
  EXPECT_EQ(after.live_registrations, before.live_registrations);
  EXPECT_EQ(stats.steps_applied, kSteps + 1);
}

TEST_P(Resources, ASkippedStepSendsNoWeights) {
  TinyOptions options = mixed_model(GetParam());
  for (std::uint32_t i = 0; i < options.parameters.size(); ++i) {
    options.injected.push_back({.step = 1, .parameter = i, .element = 0});
  }
  TinyTrainer trainer(options);
  trainer.start();
  trainer.step();
  trainer.engine().synchronize();
  const std::uint64_t before = trainer.engine().stats().weight_bytes_up;
  EXPECT_TRUE(trainer.step().result.skipped());
  trainer.engine().synchronize();
  EXPECT_EQ(trainer.engine().stats().weight_bytes_up, before);
}

// --- waits for the device ------------------------------------------------------------------------

TEST_P(Resources, WaitsDoNotGrowWithTheNumberOfParameters) {
  for (const double max_grad_norm : {0.0, 1.0}) {
    TinyOptions options;
    options.device = GetParam().device();
    options.device.memory_bytes = std::size_t{64} << 20;
    Config config;
    config.max_grad_norm = max_grad_norm;
    options.config = GetParam().apply(config);
    options.config.bucket_bytes = std::size_t{64} << 10;
    options.config.loss_scaling.initial_scale = 256.0;
    options.parameters.resize(2048);
    for (TinyParameter& parameter : options.parameters) parameter.elems = 1000;
    round_fraction(options);
    options.digest = false;
    options.max_steps = 8;
    TinyTrainer trainer(options);
    trainer.start();
    trainer.step();
    trainer.step();
    const StepStats before = trainer.engine().stats();
    const sim::Counters counters = trainer.gpu().counters();
    constexpr std::uint64_t kSteps = 4;
    for (std::uint64_t i = 0; i < kSteps; ++i) trainer.step();
    const std::uint64_t syncs =
        trainer.engine().stats().host_device_syncs - before.host_device_syncs;
    const std::uint64_t waits = trainer.gpu().counters().host_waits - counters.host_waits;
    const bool blocks = GetParam().pinned_slots || !GetParam().stream_memory_ops ||
                        GetParam().schedule == Schedule::open;
    // Where wait() may block the host, it waits for each bucket at most.
    const std::uint64_t buckets = 2048u * 2000u / options.config.bucket_bytes + 2;
    const std::uint64_t allowed = blocks ? 4 + buckets : 4;
    EXPECT_LE(syncs, 4 * kSteps) << "max_grad_norm " << max_grad_norm;
    EXPECT_LE(waits, allowed * kSteps) << "max_grad_norm " << max_grad_norm;
    const bool host_norm =
        GetParam().placement == Placement::host && GetParam().accumulate == Accumulate::host;
    // Else the norm has to be fetched; by threads with an open gate it may be there before step().
    const bool may_be_there =
        GetParam().mode == sim::Mode::threads && GetParam().schedule == Schedule::open;
    if (host_norm || !may_be_there) {
      EXPECT_EQ(syncs == 0, host_norm);
    }
  }
}

}  // namespace
}  // namespace outboard::testing
