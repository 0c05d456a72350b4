// SPDX-License-Identifier: Apache-2.0
// Who may run beside whom, in virtual time: readers never see a half-refreshed weight, step() and
// wait() do not block, refreshes come in forward order, and no gradient is read before it arrives
// or after its buffer was given back.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "engine/trajectory.hpp"

namespace outboard::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// `layers` parameters of one 8 KiB bucket each; an update takes 1 ms, an upload 100 us.
TinyOptions layered(std::uint32_t layers, std::uint64_t seed) {
  TinyOptions options;
  options.device = virtual_device(seed);
  options.device.rates.host_elems_per_s = {4096.0 * 1000};
  options.device.rates.link_up_bytes_per_s = 8192.0 * 10000;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.bucket_bytes = 8192;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.groups = {AdamW{.lr = 0.1}};
  add_parameters(options, std::vector<std::uint64_t>(layers, 4096));
  options.digest = false;
  return options;
}

/// Kernels on a stream of their own that compare all weights with what they were when made.
class Watcher {
 public:
  explicit Watcher(TinyTrainer& trainer) : trainer_(trainer) {
    stream_ = trainer.gpu().create_stream("validation");
    for (std::uint32_t i = 0; i < trainer.options().parameters.size(); ++i) {
      old_.push_back(trainer.weight_bits(i));
    }
  }
  void queue(std::uint64_t kernels, sim::Duration each) {
    for (std::uint64_t k = 0; k < kernels; ++k) {
      trainer_.gpu().launch(
          stream_, each, [this](sim::KernelView& view) { look(view); }, "watch");
    }
  }
  [[nodiscard]] NativeStream stream() const { return stream_; }
  [[nodiscard]] std::uint64_t looks() const { return looks_; }
  [[nodiscard]] std::uint64_t new_elems() const { return new_elems_; }

 private:
  void look(sim::KernelView& view) {
    ++looks_;
    for (std::uint32_t i = 0; i < old_.size(); ++i) {
      const auto now = view.as<const std::uint16_t>(trainer_.weight(i), old_[i].size());
      for (std::size_t e = 0; e < now.size(); ++e) new_elems_ += now[e] != old_[i][e] ? 1 : 0;
    }
  }
  TinyTrainer& trainer_;
  NativeStream stream_;
  std::vector<std::vector<std::uint16_t>> old_;
  std::uint64_t looks_ = 0;
  std::uint64_t new_elems_ = 0;
};

struct Watched {
  std::uint64_t new_elems = 0;
  bool outlived_step = false;  ///< the watcher still had work when step() returned
  sim::Duration end{0};
};

Watched watch_one_step(std::uint64_t seed, Placement placement, bool memops, bool known) {
  TinyOptions options = layered(6, seed);
  options.config.placement = placement;
  if (placement == Placement::fraction) options.config.device_fraction = 0.5;
  options.device.stream_memory_ops = memops;
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(1);
  Watcher watcher(trainer);
  trainer.forward();
  if (known) {
    for (std::uint32_t i = 0; i < 6; ++i) trainer.engine().wait(trainer.id(i), watcher.stream());
  }
  trainer.backward();
  watcher.queue(100, microseconds(500));
  const sim::Duration start = trainer.gpu().now();
  EXPECT_TRUE(trainer.finish().result.applied());
  Watched out;
  out.outlived_step = watcher.looks() < 100;
  trainer.engine().synchronize();
  trainer.gpu().synchronize();
  EXPECT_EQ(watcher.looks(), 100u);
  out.new_elems = watcher.new_elems();
  out.end = trainer.gpu().now() - start;
  watcher.queue(1, sim::Duration(0));
  trainer.gpu().synchronize();
  EXPECT_GT(watcher.new_elems(), out.new_elems) << "the step changed no weight";
  return out;
}

TEST(Overlap, ReadersQueuedBeforeStepSeeOldWeightsOnly) {
  for (const Placement placement :
       {Placement::host, Placement::device_resident, Placement::fraction}) {
    for (const bool memops : {true, false}) {
      std::uint64_t outlived = 0;
      for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const Watched watched = watch_one_step(seed, placement, memops, true);
        EXPECT_EQ(watched.new_elems, 0u) << "seed " << seed;
        outlived += watched.outlived_step ? 1 : 0;
        // 50 ms of reading, then 600 us of uploads: the 6 ms of updates ran meanwhile.
        if (placement == Placement::host && watched.outlived_step) {
          EXPECT_LE(watched.end, milliseconds(51)) << "seed " << seed;
        }
      }
      EXPECT_GT(outlived, 0u) << "step() always waited for the reader: nothing was tried";
    }
  }
}

/// The engine orders itself behind the streams it has seen; this shows that the test above bites.
TEST(Overlap, AStreamTheEngineNeverSawIsNotWaitedFor) {
  std::uint64_t seen = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    seen += watch_one_step(seed, Placement::host, true, false).new_elems;
  }
  EXPECT_GT(seen, 0u);
}

TEST(Overlap, WaitNeverBlocksTheHost) {
  TinyOptions options = layered(8, 3);
  options.device.rates.link_down_bytes_per_s = 8192.0 * 5000;
  options.backward = microseconds(50);
  TinyTrainer trainer(options);
  trainer.start();
  for (int step = 0; step < 4; ++step) {
    trainer.step();
    const sim::Duration before = trainer.gpu().now();
    const std::uint64_t host_waits = trainer.gpu().counters().host_waits;
    for (std::uint32_t i = 0; i < 8; ++i) {
      trainer.engine().wait(trainer.id(i), trainer.reader());
      trainer.engine().wait_gradient_taken(trainer.id(i), trainer.writer());
    }
    EXPECT_EQ(trainer.gpu().now(), before);
    EXPECT_EQ(trainer.gpu().counters().host_waits, host_waits);
  }
  EXPECT_EQ(trainer.engine().stats().refresh_wait_us, 0.0);
}

TEST(Overlap, GradientReadyNeverBlocksTheHost) {
  TinyOptions options = layered(8, 4);
  options.device.rates.link_down_bytes_per_s = 8192.0 * 100;
  options.backward = microseconds(50);
  TinyTrainer trainer(options);
  trainer.start();
  for (int step = 0; step < 3; ++step) {
    const sim::Duration before = trainer.gpu().now();
    trainer.forward();
    trainer.backward();
    EXPECT_EQ(trainer.gpu().now(), before);
    trainer.finish();
  }
}

/// Virtual times after step() at which each parameter's refresh has reached its waiter.
std::vector<sim::Duration> refresh_times(TinyTrainer& trainer) {
  const sim::Duration gate = trainer.gpu().now();
  std::vector<sim::Duration> times;
  for (std::uint32_t i = 0; i < trainer.options().parameters.size(); ++i) {
    trainer.engine().wait(trainer.id(i), trainer.reader());
    trainer.gpu().synchronize(trainer.reader());
    times.push_back(trainer.gpu().now() - gate);
  }
  return times;
}

/// A step whose gradients have all arrived, and the engine knows it, 1 us before its gate opens.
void step_with_all_gradients_there(TinyTrainer& trainer) {
  trainer.forward();
  trainer.backward();
  trainer.gpu().synchronize();
  trainer.gpu().launch(
      trainer.reader(), microseconds(1), [](sim::KernelView&) {}, "pause");
  trainer.gpu().synchronize();
  EXPECT_TRUE(trainer.finish().result.applied());
}

TEST(Overlap, StepReturnsBeforeUpdatesWhichGoInForwardOrder) {
  for (const bool memops : {true, false}) {
    TinyOptions options = layered(8, 5);
    options.device.stream_memory_ops = memops;
    TinyTrainer trainer(options);
    trainer.start();
    for (int step = 0; step < 3; ++step) {
      step_with_all_gradients_there(trainer);
      const std::vector<sim::Duration> times = refresh_times(trainer);
      for (std::uint32_t i = 0; i < 8; ++i) {
        // i+1 updates of 1 ms, then its own upload: later buckets have not been touched.
        EXPECT_EQ(times[i], milliseconds(i + 1) + microseconds(100)) << i;
      }
    }
  }
}

TEST(Overlap, SerialStepReturnsWhenAllIsUploaded) {
  TinyOptions options = layered(8, 6);
  options.config.schedule = Schedule::serial;
  TinyTrainer trainer(options);
  trainer.start();
  for (int step = 0; step < 3; ++step) {
    const sim::Duration before = trainer.gpu().now();
    trainer.step();
    // Neither forward, backward nor the link down take time here.
    EXPECT_EQ(trainer.gpu().now() - before, milliseconds(8) + microseconds(800));
    for (const sim::Duration time : refresh_times(trainer)) EXPECT_EQ(time, sim::Duration(0));
  }
}

TEST(Overlap, FirstLayerRunsWhileLaterOnesAreUpdated) {
  TinyOptions options = layered(8, 7);
  options.forward = milliseconds(1);
  TinyTrainer trainer(options);
  trainer.start();
  step_with_all_gradients_there(trainer);
  sim::Duration before = trainer.gpu().now();
  for (int step = 0; step < 3; ++step) {
    step_with_all_gradients_there(trainer);
    // Serial would take 8 + 0.8 + 8 ms; here a forward follows 1.1 ms behind its update.
    EXPECT_EQ(trainer.gpu().now() - before, milliseconds(9) + microseconds(101));
    before = trainer.gpu().now();
  }
}

/// The first layer's gradient arrives last. Updates of buckets that are there go ahead meanwhile,
/// so the first one waits for at most the one update that runs when it arrives.
TEST(Overlap, NothingWaitsForABucketThatHasNotArrived) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    TinyOptions options = layered(8, seed);
    options.device.rates.link_down_bytes_per_s = 8192.0 * 500;  // 2 ms for each bucket
    TinyTrainer trainer(options);
    trainer.start();
    trainer.forward();
    trainer.backward();
    const sim::Duration start = trainer.gpu().now();
    trainer.finish();
    // Copies end at 16 ms, 50 us later with the gate's scalars, and then nothing but the update and
    // upload of the first is left.
    EXPECT_LT(trainer.gpu().now() - start, milliseconds(16)) << "the gate waited for the copies";
    trainer.engine().wait(trainer.id(0), trainer.reader());
    trainer.gpu().synchronize(trainer.reader());
    EXPECT_LE(trainer.gpu().now() - start, milliseconds(17) + microseconds(150));
    trainer.engine().synchronize();
    EXPECT_LE(trainer.gpu().now() - start, milliseconds(17) + microseconds(850));
  }
}

constexpr std::uint16_t kGarbage = 0x7BFF;  // 65504: finite, so that only the result betrays it

TinyOptions late_copies(std::uint64_t seed) {
  TinyOptions options = layered(0, seed);
  options.device.memory_bytes = std::size_t{1} << 20;
  options.device.rates = {};
  options.config.max_grad_norm = 1e6;
  const std::array<std::uint64_t, 6> sizes = {500, 4096, 9000, 3, 4097, 1200};
  add_parameters(options, sizes);
  return options;
}

/// Runs steps in which a kernel writes garbage over every gradient buffer as soon as
/// wait_gradient_taken() says that it may.
Trajectory run_with_garbage(TinyTrainer& trainer, std::uint64_t steps) {
  const auto count = static_cast<std::uint32_t>(trainer.options().parameters.size());
  const std::uint32_t ring = trainer.options().gradient_ring;
  std::uint32_t given = 0;
  Trajectory out;
  for (std::uint64_t s = 0; s < steps; ++s) {
    trainer.forward();
    for (std::uint32_t i = count; i-- > 0;) {
      trainer.give_gradient(i);
      trainer.engine().wait_gradient_taken(trainer.id(i), trainer.writer());
      void* const buffer = trainer.gradient(ring == 0 ? i : given++ % ring);
      const auto elems = static_cast<std::size_t>(trainer.options().parameters[i].elems);
      const auto spoil = [buffer, elems](sim::KernelView& view) {
        for (std::uint16_t& half : view.as<std::uint16_t>(buffer, elems)) half = kGarbage;
      };
      trainer.gpu().launch(trainer.writer(), sim::Duration(0), spoil, "spoil");
    }
    TrajectoryStep& seen = out.emplace_back();
    seen.grad_norm = trainer.finish().result.grad_norm;
  }
  for (std::uint64_t s = 0; s < steps; ++s) out[s].loss = trainer.loss(s);
  out.back().digest = trainer.engine().state_digest();
  return out;
}

TEST(Overlap, LateCopiesAreNeverReadEarlyAndTakenBuffersNeverAgain) {
  constexpr std::uint64_t kSteps = 3;
  TinyOptions plain = late_copies(0);
  plain.config.schedule = Schedule::serial;
  TinyTrainer reference_trainer(plain);
  reference_trainer.start();
  const Trajectory reference = run_with_garbage(reference_trainer, kSteps);
  EXPECT_LT(reference.back().grad_norm, 65504.0) << "garbage is part of the reference";
  for (std::uint64_t seed = 1; seed <= 1000 && !HasFailure(); ++seed) {
    TinyOptions options = late_copies(seed);
    options.device.max_random_delay = milliseconds(50);
    options.device.stream_memory_ops = seed % 2 == 0;
    options.second_stream = seed % 3 == 0;
    options.gradient_ring = static_cast<std::uint32_t>(seed % 4 < 2 ? 2 : 0);
    if (seed % 5 == 0) options.config.pinned_slots = 2;
    TinyTrainer trainer(options);
    trainer.start();
    EXPECT_EQ(first_difference(reference, run_with_garbage(trainer, kSteps)), "")
        << "seed " << seed;
  }
}

/// Gradients that need no weight, on a stream that no wait() was given: they are there while the
/// slots still hold weights on their way up.
std::uint64_t digest_of_free_gradients(TinyTrainer& trainer) {
  trainer.start();
  sim::Gpu gpu = trainer.gpu();
  const NativeStream free_stream = gpu.create_stream("free");
  for (std::uint64_t step = 0; step < 4; ++step) {
    trainer.forward();
    for (std::uint32_t i = 0; i < 8; ++i) {
      void* const buffer = trainer.gradient(i);
      if (step > 0) trainer.engine().wait_gradient_taken(trainer.id(i), free_stream);
      const auto kernel = [=](sim::KernelView& view) {
        const auto gradient = view.as<std::uint16_t>(buffer, 4096);
        for (std::size_t e = 0; e < 4096; ++e) {
          gradient[e] = half_from_float(mixed_unit(step, i, e));
        }
      };
      gpu.launch(free_stream, sim::Duration(0), kernel, "free");
      trainer.engine().gradient_ready(trainer.id(i), buffer, free_stream);
    }
    trainer.finish();
  }
  const std::uint64_t state = trainer.engine().state_digest();
  std::uint64_t sum = state;
  for (std::uint32_t i = 0; i < 8; ++i) {
    for (const std::uint16_t bits : trainer.weight_bits(i)) sum = mix_bits(sum, bits, i);
  }
  return sum;
}

TEST(Overlap, SlotsKeepTheirWeightsUntilUploaded) {
  TinyOptions plain = layered(8, 1);
  plain.config.schedule = Schedule::serial;
  TinyTrainer reference(plain);
  const std::uint64_t expected = digest_of_free_gradients(reference);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    TinyOptions options = layered(8, seed);
    options.device.stream_memory_ops = seed % 2 == 0;
    if (seed % 4 == 3) options.config.pinned_slots = 2;
    TinyTrainer trainer(options);
    EXPECT_EQ(digest_of_free_gradients(trainer), expected) << "seed " << seed;
  }
}

TEST(Overlap, TwoGradientBuffersServeManyLayers) {
  const auto run = [](std::uint32_t ring, std::uint64_t seed) {
    TinyOptions options = layered(40, seed);
    options.device.rates.link_down_bytes_per_s = 8192.0 * 2000;
    options.backward = microseconds(100);
    options.gradient_ring = ring;
    TinyTrainer trainer(options);
    trainer.start();
    return run_with_garbage(trainer, 3);
  };
  const Trajectory reference = run(0, 1);
  for (std::uint64_t seed = 2; seed <= 6; ++seed) {
    EXPECT_EQ(first_difference(reference, run(2, seed)), "") << "seed " << seed;
    EXPECT_EQ(first_difference(reference, run(1, seed)), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace outboard::testing
