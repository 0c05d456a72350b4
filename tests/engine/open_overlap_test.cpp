// SPDX-License-Identifier: Apache-2.0
// What an open gate is for, in virtual time: updates and uploads run beside backward, nothing
// blocks the trainer, and still nobody sees a weight change that was read before its gradient was
// given.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "engine/timed_steps.hpp"
#include "engine/trajectory.hpp"

namespace outboard::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// `layers` parameters of one 8 KiB bucket each. Durations of one of them.
struct Even {
  std::uint32_t layers = 8;
  sim::Duration forward{0}, backward{0};
  double down_us = 0.0, update_us = 0.0, up_us = 0.0;
};

double rate(double amount, double us) {
  return us == 0.0 ? 0.0 : amount * 1e6 / us;
}

TinyOptions even_model(const Even& even, std::uint64_t seed = 1) {
  TinyOptions options;
  options.device = virtual_device(seed);
  sim::Rates& rates = options.device.rates;
  rates.link_down_bytes_per_s = rate(8192, even.down_us);
  rates.link_up_bytes_per_s = rate(8192, even.up_us);
  rates.host_elems_per_s = {rate(4096, even.update_us)};
  options.config.schedule = Schedule::open;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.bucket_bytes = 8192;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.groups = {AdamW{.lr = 0.1}};
  add_parameters(options, std::vector<std::uint64_t>(even.layers, 4096));
  options.forward = even.forward;
  options.backward = even.backward;
  options.digest = false;
  return options;
}

/// The weight as the device has it, whatever the engine thinks of it.
std::vector<std::uint16_t> on_device(TinyTrainer& trainer, std::uint32_t i, NativeStream stream) {
  const auto elems = static_cast<std::size_t>(trainer.options().parameters[i].elems);
  return download<std::uint16_t>(trainer.gpu(), trainer.weight(i), elems, stream);
}

TEST(OpenOverlap, WeightsAreRefreshedBeforeStepIsCalled) {
  for (const Placement placement : {Placement::host, Placement::device_resident}) {
    TinyOptions options = even_model({.update_us = 1000, .up_us = 100});
    options.config.placement = placement;
    TinyTrainer trainer(options);
    trainer.start();
    std::vector<std::vector<std::uint16_t>> before;
    for (std::uint32_t i = 0; i < 8; ++i) before.push_back(on_device(trainer, i, trainer.reader()));
    trainer.forward();
    trainer.backward();
    trainer.gpu().launch(
        trainer.reader(), milliseconds(9), [](sim::KernelView&) {}, "pause");
    trainer.gpu().synchronize();
    for (std::uint32_t i = 0; i < 8; ++i) {
      EXPECT_NE(on_device(trainer, i, trainer.reader()), before[i]) << i;
    }
    EXPECT_TRUE(trainer.finish().result.applied());
  }
}

TEST(OpenOverlap, StepWaitsForNormsAndForNoUpdate) {
  TinyTrainer trainer(even_model({.backward = microseconds(10), .update_us = 10000}));
  trainer.start();
  for (int s = 0; s < 3; ++s) {
    trainer.forward();
    trainer.backward();
    const sim::Duration before = trainer.gpu().now();
    EXPECT_TRUE(trainer.finish().result.applied());
    EXPECT_LE(trainer.gpu().now() - before, microseconds(81));
  }
  const StepStats stats = trainer.engine().stats();
  EXPECT_LE(stats.gate_wait_us, 3 * 81.0);
  EXPECT_EQ(stats.drain_wait_us, 0.0);
  EXPECT_EQ(stats.finish_wait_us, 0.0);
  EXPECT_GE(stats.refresh_wait_us, 2 * 70000.0) << "wait() does";
}

/// A full ring holds copies back, never the caller.
TEST(OpenOverlap, GradientReadyNeverBlocks) {
  for (const std::uint32_t pinned : {1U, 3U, 100U}) {
    for (const Placement placement : {Placement::host, Placement::device_resident}) {
      TinyOptions options = even_model({.layers = 12,
                                        .backward = microseconds(50),
                                        .down_us = 300,
                                        .update_us = 700,
                                        .up_us = 300});
      options.config.pinned_slots = pinned;
      options.config.placement = placement;
      TinyTrainer trainer(options);
      trainer.start();
      for (int s = 0; s < 3; ++s) {
        trainer.forward();  // wait() may block
        const sim::Duration before = trainer.gpu().now();
        trainer.backward();
        EXPECT_EQ(trainer.gpu().now(), before) << pinned;
        trainer.finish();
      }
    }
  }
}

// --- the time of a step --------------------------------------------------------------------------

struct Measured {
  double longest_us = 0.0;
  double gate_us = 0.0;  ///< the scalars' copies of one step
};

/// From one end of forward to the next, after two steps to warm up.
Measured measure(const Even& even, std::uint64_t seed) {
  TinyTrainer trainer(even_model(even, seed));
  trainer.start();
  constexpr std::size_t kWarm = 2, kSteps = 4;
  const std::vector<sim::Duration> ends = forward_ends(trainer, kWarm + kSteps);
  Measured out;
  for (std::size_t s = kWarm; s < ends.size(); ++s) {
    const auto took = static_cast<double>((ends[s] - ends[s - 1]).count()) * 1e-3;
    out.longest_us = std::max(out.longest_us, took);
  }
  out.gate_us = even.layers * 24.0 / 8192.0 * even.down_us;
  return out;
}

TEST(OpenOverlap, HidesAllButOneBucketWhereBucketsAreEven) {
  double worst = 0.0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const auto between = [&](double low, double high, std::uint64_t salt) {
      return std::round(low + (high - low) * static_cast<double>(mix_bits(seed, salt, 3) % 1000) /
                                  1000.0);
    };
    Even even;
    even.layers = static_cast<std::uint32_t>(4 + mix_bits(seed, 9, 9) % 40);
    even.forward = microseconds(static_cast<int>(between(10, 200, 1)));
    even.backward = microseconds(static_cast<int>(between(10, 400, 2)));
    even.down_us = between(5, 400, 3);
    even.update_us = between(5, 400, 4);
    even.up_us = between(5, 400, 5);
    const double forward_us = static_cast<double>(even.forward.count()) * 1e-3;
    const double backward_us = static_cast<double>(even.backward.count()) * 1e-3;
    const double slowest =
        std::max({backward_us, even.down_us, even.update_us, even.up_us}) * even.layers;
    const Measured seen = measure(even, seed);
    const double bound = even.layers * forward_us + slowest + even.down_us + even.update_us +
                         even.up_us + seen.gate_us + 1e-3 * 8 * even.layers;  // rounding to ns
    EXPECT_LE(seen.longest_us, bound) << "seed " << seed;
    EXPECT_GE(seen.longest_us, even.layers * (forward_us + backward_us)) << "seed " << seed;
    worst = std::max(worst, seen.longest_us / bound);
  }
  std::printf("120 even layouts, worst step / bound %.4f\n", worst);
}

/// 32 buckets, one every 10 ms; copies of 2 ms, updates of 8 ms. One after the other: 704 ms.
TEST(OpenOverlap, AnEvenStepByHand) {
  const Even even{.layers = 32,
                  .forward = sim::Duration(0),
                  .backward = milliseconds(10),
                  .down_us = 2000,
                  .update_us = 8000,
                  .up_us = 2000};
  const Measured seen = measure(even, 1);
  EXPECT_LE(seen.longest_us, 332000.0 + seen.gate_us + 1.0);
  EXPECT_GE(seen.longest_us, 332000.0 - 1.0);
}

// --- readers -------------------------------------------------------------------------------------

struct Watched {
  std::uint64_t new_elems = 0;
  std::uint64_t looks_after_step = 0;
};

/// A validation pass of 20 ms on a stream of its own, queued before the gradients are given.
Watched watch(std::uint64_t seed, Placement placement, bool known, bool ring) {
  TinyOptions options = even_model({.update_us = 100, .up_us = 10}, seed);
  options.config.placement = placement;
  if (ring) options.config.pinned_slots = 2;
  options.device.max_random_delay = microseconds(seed % 3 * 20);
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(1);
  sim::Gpu gpu = trainer.gpu();
  const NativeStream validation = gpu.create_stream("validation");
  std::vector<std::vector<std::uint16_t>> old;
  for (std::uint32_t i = 0; i < 8; ++i) old.push_back(trainer.weight_bits(i));
  trainer.forward();
  for (std::uint32_t i = 0; known && i < 8; ++i) {
    trainer.engine().wait(trainer.id(i), validation);
  }
  constexpr std::uint64_t kLooks = 40;
  Watched out;
  std::uint64_t looks = 0;
  for (std::uint64_t k = 0; k < kLooks; ++k) {
    gpu.launch(validation, microseconds(500), [&](sim::KernelView& view) {
      ++looks;
      for (std::uint32_t i = 0; i < 8; ++i) {
        const auto now = view.as<const std::uint16_t>(trainer.weight(i), old[i].size());
        for (std::size_t e = 0; e < now.size(); ++e) out.new_elems += now[e] != old[i][e] ? 1 : 0;
      }
    });
  }
  trainer.backward();
  EXPECT_TRUE(trainer.finish().result.applied());
  out.looks_after_step = kLooks - looks;
  trainer.engine().synchronize();
  gpu.synchronize();
  EXPECT_NE(trainer.weight_bits(0), old[0]) << "the step changed no weight";
  return out;
}

TEST(OpenOverlap, ReadersQueuedBeforeTheGradientSeeOldWeightsOnly) {
  for (const Placement placement : {Placement::host, Placement::device_resident}) {
    for (const bool ring : {false, true}) {
      std::uint64_t outlived = 0;
      for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const Watched seen = watch(seed, placement, true, ring);
        EXPECT_EQ(seen.new_elems, 0u) << "seed " << seed;
        outlived += seen.looks_after_step;
      }
      EXPECT_GT(outlived, 0u) << "step() always waited for the reader: nothing was tried";
    }
  }
}

/// This shows that the test above bites.
TEST(OpenOverlap, AStreamTheEngineNeverSawIsNotWaitedFor) {
  std::uint64_t seen = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    seen += watch(seed, Placement::host, false, false).new_elems;
  }
  EXPECT_GT(seen, 0u);
}

/// A reader that came before a step in which its parameter got no gradient, and nothing an update.
TEST(OpenOverlap, ReadersOfAnEarlierStepAreNotForgotten) {
  for (const Placement placement : {Placement::host, Placement::device_resident}) {
    TinyOptions options = even_model({.layers = 2, .update_us = 10, .up_us = 10});
    options.config.placement = placement;
    options.has_gradient = [](std::uint64_t step, std::uint32_t i) { return step > 0 || i == 0; };
    options.injected = {{.step = 0, .parameter = 0, .element = 1}};
    TinyTrainer trainer(options);
    trainer.start();
    sim::Gpu gpu = trainer.gpu();
    const NativeStream validation = gpu.create_stream("validation");
    const std::vector<std::uint16_t> old = trainer.weight_bits(1);
    trainer.engine().wait(trainer.id(1), validation);
    std::uint64_t new_elems = 0;
    std::uint64_t looks = 0;
    for (int k = 0; k < 40; ++k) {
      gpu.launch(validation, microseconds(500), [&](sim::KernelView& view) {
        ++looks;
        const auto now = view.as<const std::uint16_t>(trainer.weight(1), old.size());
        for (std::size_t e = 0; e < now.size(); ++e) new_elems += now[e] != old[e] ? 1 : 0;
      });
    }
    EXPECT_TRUE(trainer.step().result.skipped());
    EXPECT_TRUE(trainer.step().result.applied());
    EXPECT_LT(looks, 40u) << "the reader was waited for: nothing was tried";
    trainer.engine().synchronize();
    gpu.synchronize();
    EXPECT_EQ(new_elems, 0u);
    EXPECT_NE(trainer.weight_bits(1), old);
  }
}

// --- a missing wait ------------------------------------------------------------------------------

TEST(OpenOverlap, CheckWaitsShowsAReadThatNobodyWaitedFor) {
  for (const bool checked : {false, true}) {
    TinyOptions options = even_model({.layers = 2, .update_us = 1000, .up_us = 100});
    options.config.check_waits = checked;
    TinyTrainer trainer(options);
    trainer.start();
    trainer.forward();
    trainer.backward();
    EXPECT_TRUE(trainer.finish().result.applied());
    std::uint64_t nans = 0;
    const NativeStream other = trainer.gpu().create_stream("careless");
    trainer.gpu().launch(
        other, microseconds(100), [](sim::KernelView&) {}, "pause");
    trainer.gpu().launch(other, sim::Duration(0), [&](sim::KernelView& view) {
      for (const std::uint16_t half : view.as<const std::uint16_t>(trainer.weight(0), 4096)) {
        nans += std::isnan(half_to_float(half)) ? 1 : 0;
      }
    });
    trainer.gpu().synchronize();
    EXPECT_EQ(nans, checked ? 4096u : 0u);
    for (const std::uint16_t half : trainer.weight_bits(0)) {
      ASSERT_FALSE(std::isnan(half_to_float(half)));
    }
  }
}

}  // namespace
}  // namespace outboard::testing
