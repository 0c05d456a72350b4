// SPDX-License-Identifier: Apache-2.0
/// Device calls that fail, one after the other, at once or when they run: the failure surfaces with
/// the call's name, nothing hangs, and nothing leaks.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/after_failure.hpp"
#include "engine/flavours.hpp"
#include "engine/splits.hpp"
#include "support/expect_error.hpp"
#include "support/manual_trainer.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

constexpr sim::Call kCalls[] = {
    sim::Call::allocate,       sim::Call::register_host, sim::Call::create_stream,
    sim::Call::create_event,   sim::Call::record,        sim::Call::wait_event,
    sim::Call::notify,         sim::Call::copy_to_host,  sim::Call::copy_to_device,
    sim::Call::copy_on_device, sim::Call::kernel,        sim::Call::wait_flag,
    sim::Call::write_flag,
};

bool same_holdings(const sim::Counters& a, const sim::Counters& b) {
  return a.live_allocations == b.live_allocations && a.live_streams == b.live_streams &&
         a.live_events == b.live_events && a.live_registrations == b.live_registrations;
}

std::string holdings(const sim::Counters& c) {
  return std::to_string(c.live_allocations) + " allocations, " + std::to_string(c.live_streams) +
         " streams, " + std::to_string(c.live_events) + " events, " +
         std::to_string(c.live_registrations) + " registrations";
}

TinyOptions small_model(const Flavour& flavour) {
  TinyOptions options;
  options.device = flavour.device();
  options.device.memory_bytes = std::size_t{1} << 20;
  Config config;
  config.max_grad_norm = 1.0;
  config.loss_scaling.initial_scale = 64.0;
  options.config = flavour.apply(config);
  options.parameters.resize(5);
  options.parameters[0].elems = 5000;
  options.parameters[1].elems = 10;
  options.parameters[2].elems = 0;
  options.parameters[3].elems = 20;  // packed with the second
  options.parameters[4].elems = 9000;
  options.second_stream = true;
  options.max_steps = 8;
  round_fraction(options);
  return options;
}

/// Construction, commit and three steps under one fault.
/// @return whether the fault was met.
bool survives(const Flavour& flavour, const sim::Fault& fault) {
  TinyOptions options = small_model(flavour);
  options.device.faults = {fault};
  const std::string call = sim::to_string(fault.call);
  sim::Gpu gpu(options.device);
  std::unique_ptr<TinyTrainer> trainer;
  if (const auto error = caught([&] { trainer = std::make_unique<TinyTrainer>(gpu, options); })) {
    expect_named(*error, call);  // one of the trainer's own calls
    return true;
  }
  const sim::Counters before = gpu.counters();
  const std::optional<Error> error = caught([&] {
    trainer->start();
    trainer->run(3);
    for (std::uint32_t i = 0; i < 4; ++i) trainer->state(i);
    gpu.synchronize();
  });
  if (error) expect_named(*error, call);
  if (error && !fault.at_call && trainer->started() && trainer->steps() > 0) {
    expect_refused(*trainer, call);
  }
  trainer->stop();
  const sim::Counters after = gpu.counters();
  EXPECT_TRUE(same_holdings(after, before))
      << holdings(after) << " instead of " << holdings(before);
  return error.has_value();
}

struct FaultCase {
  sim::Call call;
  bool at_call;
  Flavour flavour;
};
std::string case_name(const FaultCase& c) {
  return std::string(sim::to_string(c.call)) + (c.at_call ? "_at_call_" : "_when_run_") +
         c.flavour.name;
}
std::ostream& operator<<(std::ostream& out, const FaultCase& c) {
  return out << case_name(c);
}

/// Half of the state on the device.
Flavour half_resident(sim::Mode mode) {
  Flavour half{.name = mode == sim::Mode::threads ? "threads_half" : "virtual_half", .mode = mode};
  half.placement = Placement::fraction;
  half.device_fraction = 0.5;
  return half;
}

std::vector<Flavour> every_flavour() {
  std::vector<Flavour> out = all_flavours();
  const std::vector<Flavour> open = open_flavours();
  out.insert(out.end(), open.begin(), open.end());
  return out;
}

std::vector<FaultCase> fault_cases(sim::Mode mode) {
  std::vector<FaultCase> out;
  std::vector<Flavour> flavours = every_flavour();
  flavours.push_back(half_resident(mode));
  flavours.push_back(half_resident(mode));
  flavours.back().name = mode == sim::Mode::threads ? "threads_automatic" : "virtual_automatic";
  flavours.back().placement = Placement::automatic;
  flavours.back().device_fraction = 0.0;
  for (const Flavour& flavour : flavours) {
    if (flavour.mode != mode) continue;
    for (const sim::Call call : kCalls) {
      out.push_back({call, true, flavour});
      out.push_back({call, false, flavour});
    }
  }
  return out;
}

class VirtualFaults : public ::testing::TestWithParam<FaultCase> {};
INSTANTIATE_TEST_SUITE_P(Each, VirtualFaults,
                         ::testing::ValuesIn(fault_cases(sim::Mode::virtual_time)),
                         [](const auto& test) { return case_name(test.param); });

TEST_P(VirtualFaults, SurfaceAndLeakNothing) {
  const FaultCase& c = GetParam();
  std::uint64_t missed = 0;
  std::uint64_t met = 0;
  for (std::uint64_t nth = 1; nth <= 400 && missed < 2; ++nth) {
    SCOPED_TRACE("nth " + std::to_string(nth));
    if (survives(c.flavour, {.call = c.call, .nth = nth, .at_call = c.at_call})) {
      ++met;
    } else {
      ++missed;
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(missed, 2u) << "more calls than this test tries";
  RecordProperty("met", static_cast<int>(met));
}

class ThreadFaults : public ::testing::TestWithParam<FaultCase> {};
INSTANTIATE_TEST_SUITE_P(Each, ThreadFaults, ::testing::ValuesIn(fault_cases(sim::Mode::threads)),
                         [](const auto& test) { return case_name(test.param); });

TEST_P(ThreadFaults, SurfaceAndLeakNothing) {
  const FaultCase& c = GetParam();
  for (const std::uint64_t nth : {1u, 4u, 9u, 15u}) {
    SCOPED_TRACE("nth " + std::to_string(nth));
    survives(c.flavour, {.call = c.call, .nth = nth, .at_call = c.at_call});
  }
}

class EachWay : public ::testing::TestWithParam<Flavour> {};
INSTANTIATE_TEST_SUITE_P(Ways, EachWay, ::testing::ValuesIn(every_flavour()),
                         [](const auto& test) { return flavour_name(test.param); });
/// Virtual time has one thread.
using EachThreadedWay = EachWay;
INSTANTIATE_TEST_SUITE_P(Ways, EachThreadedWay,
                         ::testing::ValuesIn(flavours_where([](const Flavour& flavour) {
                           return flavour.mode == sim::Mode::threads;
                         })),
                         [](const auto& test) { return flavour_name(test.param); });

/// Without a fault everything that an engine took is given back.
TEST_P(EachWay, GivesBackWhatItTook) {
  TinyTrainer trainer(small_model(GetParam()));
  const sim::Counters before = trainer.gpu().counters();
  const std::size_t used = trainer.gpu().memory().used_bytes;
  trainer.start();
  trainer.run(3);
  EXPECT_FALSE(same_holdings(trainer.gpu().counters(), before));
  trainer.stop();
  EXPECT_EQ(holdings(trainer.gpu().counters()), holdings(before));
  EXPECT_EQ(trainer.gpu().memory().used_bytes, used);
}

/// Refused before or after the device was asked for something: the only error is the one that says
/// so.
TEST_P(EachWay, ABadOptionIsTheOneErrorAndLeavesNothing) {
  const sim::Gpu gpu(small_model(GetParam()).device);
  const sim::Counters before = gpu.counters();
  Config clip = GetParam().apply({});
  clip.max_grad_norm = -1.0;
  Config bucket = GetParam().apply({});
  bucket.bucket_bytes = 1;
  Config scale = GetParam().apply({});
  scale.loss_scaling.initial_scale = 0.0;
  Config machine = GetParam().apply({});
  machine.host.synthetic_topology = "a machine of dreams";
  const std::vector<std::pair<const char*, Config>> broken = {{"max_grad_norm", clip},
                                                              {"bucket_bytes", bucket},
                                                              {"initial_scale", scale},
                                                              {"a machine of dreams", machine}};
  for (const auto& [named, config] : broken) {
    expect_error(ErrorCode::invalid_config, {named},
                 [&, &settings = config] { Engine engine(gpu.device(), settings); });
    EXPECT_EQ(holdings(gpu.counters()), holdings(before)) << named;
  }
  TinyTrainer trainer(gpu, small_model(GetParam()));
  trainer.start();  // only the options were wrong
  EXPECT_TRUE(trainer.step().result.applied());
}

TEST_P(EachWay, ACommitThatRunsOutOfDeviceMemoryLeavesNothing) {
  TinyOptions options = small_model(GetParam());
  sim::Gpu gpu(options.device);
  TinyTrainer trainer(gpu, options);
  const sim::MemoryUse use = gpu.memory();
  // Whatever is left, less a little at a time: the commit fails at another allocation each time.
  bool failed = false;
  for (const std::size_t left : {std::size_t{0}, std::size_t{256}, std::size_t{1024},
                                 std::size_t{40} << 10, std::size_t{120} << 10}) {
    const DeviceBuffer hog(gpu, use.limit_bytes - use.used_bytes - left);
    const sim::Counters before = gpu.counters();
    trainer.prepare();
    const std::optional<Error> error = caught([&] { trainer.engine().commit(); });
    if (error) {
      failed = true;
      EXPECT_EQ(error->code(), ErrorCode::out_of_memory) << error->what();
      EXPECT_NE(std::string(error->what()).find_first_of("123456789"), std::string::npos)
          << "no amount in: " << error->what();
      EXPECT_EQ(holdings(gpu.counters()), holdings(before)) << "right after the failed commit";
    }
    trainer.stop();
    EXPECT_EQ(holdings(gpu.counters()), holdings(before));
  }
  EXPECT_TRUE(failed);
  trainer.start();  // with room it works
  EXPECT_TRUE(trainer.step().result.applied());
}

TEST_P(EachWay, AFailedCopyPoisonsTheEngine) {
  TinyOptions options = small_model(GetParam());
  options.digest = false;
  {
    TinyTrainer sound(options);
    sound.start();
    const std::uint64_t by_commit = sound.gpu().counters().copies_to_host;
    // The trainer itself copies nothing to the host: this is the engine's, in the second step.
    sound.step();
    const std::uint64_t by_step = sound.gpu().counters().copies_to_host - by_commit;
    options.device.faults = {
        {.call = sim::Call::copy_to_host, .nth = by_commit + by_step + 1, .at_call = true}};
  }
  TinyTrainer trainer(options);
  const sim::Counters before = trainer.gpu().counters();
  trainer.start();
  const std::optional<Error> error = caught([&] {
    trainer.run(3);
    trainer.engine().synchronize();
  });
  ASSERT_TRUE(error.has_value());
  EXPECT_NE(std::string(error->what()).find("copy_to_host"), std::string::npos) << error->what();
  expect_refused(trainer, "copy_to_host");
  trainer.stop();
  EXPECT_EQ(holdings(trainer.gpu().counters()), holdings(before));
  // Only the engine was lost: the device takes a new one.
  EXPECT_NO_THROW(trainer.start());
}

// --- destruction with work in flight -------------------------------------------------------------

/// Slow enough that something is always under way.
void slow_down(TinyOptions& options, std::uint64_t i) {
  if (options.device.mode == sim::Mode::virtual_time) {
    options.device.seed = i;
    options.device.max_random_delay = std::chrono::microseconds(50);
    options.device.rates.host_elems_per_s = {1e8};
    options.device.rates.copy_latency = std::chrono::microseconds(10);
    options.forward = options.backward = std::chrono::microseconds(20);
  }
  options.digest = false;
}

/// One step, then something half done that depends on `i`.
void leave_work(TinyTrainer& trainer, std::uint64_t i) {
  const std::uint64_t where = i % 5;
  if (where == 0) return;  // right after commit
  if (where == 1) return trainer.backward();
  trainer.step();
  if (where == 2) return;
  trainer.forward();
  if (where == 3) return;
  trainer.backward();
}

TEST_P(EachWay, MayBeDestroyedAtAnyMoment) {
  const bool plainest = GetParam().name == "threads_host" || GetParam().name == "virtual_host";
  for (std::uint64_t i = 0; i < (plainest ? 500u : 100u); ++i) {
    TinyOptions options = small_model(GetParam());
    slow_down(options, i);
    sim::Gpu gpu(options.device);
    TinyTrainer trainer(gpu, options);
    const sim::Counters before = gpu.counters();
    trainer.start();
    leave_work(trainer, i);
    trainer.stop();
    ASSERT_EQ(holdings(gpu.counters()), holdings(before)) << i;
  }
}

TEST_P(EachWay, MayBeDestroyedAndMadeAgainOnTheSameDevice) {
  TinyOptions options = small_model(GetParam());
  slow_down(options, 1);
  options.max_steps = 256;
  TinyTrainer trainer(options);
  const sim::Counters before = trainer.gpu().counters();
  for (std::uint64_t i = 0; i < 100; ++i) {
    trainer.start();
    leave_work(trainer, i);
    trainer.stop();
    ASSERT_EQ(holdings(trainer.gpu().counters()), holdings(before)) << i;
  }
}

TEST_P(EachThreadedWay, MayBeDestroyedFromAnotherThread) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    TinyTrainer trainer(small_model(GetParam()));
    const sim::Counters before = trainer.gpu().counters();
    trainer.start();
    leave_work(trainer, i);
    std::thread other([&] { trainer.stop(); });
    other.join();
    ASSERT_EQ(holdings(trainer.gpu().counters()), holdings(before)) << i;
  }
}

TEST_P(EachWay, MayOutliveTheTrainersHandleOnTheDevice) {
  std::optional<ManualTrainer> trainer;
  trainer.emplace(GetParam().apply({}), GetParam().device());
  const GroupId group = trainer->engine->add_group({});
  const ParameterId w = trainer->add("w", std::vector<float>(5000, 1.0F), group);
  trainer->engine->commit();
  EXPECT_TRUE(trainer->step({{w, std::vector<float>(5000, 1.0F)}}).applied());
  const std::unique_ptr<Engine> engine = std::move(trainer->engine);
  engine->synchronize();
  trainer.reset();  // frees the weights and the trainer's handle
  EXPECT_EQ(engine->step_count(w), 1u);
}

}  // namespace
}  // namespace outboard::testing
