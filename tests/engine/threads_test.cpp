// SPDX-License-Identifier: Apache-2.0
// Real threads calling in at once, and engines that die with work in flight. Small and repeated
// often: meant to run under ThreadSanitizer too.

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/trajectory.hpp"
#include "plan/model_layout.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint32_t kProducers = 4;
constexpr std::uint32_t kRepetitions = 200;

TinyOptions small_options(std::uint32_t parameters, std::uint64_t elems) {
  TinyOptions options;
  options.device.memory_bytes = std::size_t{2} << 20;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.initial_scale = 64.0, .growth_interval = 50};
  options.config.bucket_bytes = 8192;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:2 pu:1";
  options.groups = {AdamW{.lr = 1e-2, .weight_decay = 0.1}};
  add_parameters(options, std::vector<std::uint64_t>(parameters, elems));
  options.digest = false;
  options.max_steps = kRepetitions + 1;
  return options;
}

/// Several threads, each with its own stream, that do the forward and backward of a fixed part of
/// the parameters. Gradients depend on the weights and on the step.
class Producers {
 public:
  explicit Producers(TinyTrainer& trainer) : trainer_(trainer), round_(kProducers + 1) {
    const auto& parameters = trainer.options().parameters;
    for (std::uint32_t t = 0; t < kProducers; ++t) {
      streams_.push_back(trainer.gpu().create_stream("producer"));
    }
    for (std::uint32_t i = 0; i < parameters.size(); ++i) {
      gradients_.emplace_back(trainer.gpu(), static_cast<std::size_t>(parameters[i].elems) * 2);
    }
  }
  ~Producers() { trainer_.gpu().synchronize(); }

  /// `part(thread, step)` runs on each thread once a step; then step() on this thread.
  void run(std::uint64_t steps, const std::function<void(std::uint32_t, std::uint64_t)>& part) {
    std::vector<std::jthread> threads;
    for (std::uint32_t t = 0; t < kProducers; ++t) {
      threads.emplace_back([this, t, steps, &part] {
        for (std::uint64_t s = 0; s < steps; ++s) {
          round_.arrive_and_wait();
          guarded(t, [&] { part(t, s); });
          round_.arrive_and_wait();
        }
      });
    }
    for (std::uint64_t s = 0; s < steps; ++s) {
      scale_ = static_cast<float>(trainer_.engine().loss_scale());
      round_.arrive_and_wait();
      round_.arrive_and_wait();
      guarded(0, [&] { trainer_.engine().step(); });
    }
    threads.clear();
    // Through a bounce ring, gradients may be read until their updates are done.
    guarded(0, [&] { trainer_.engine().synchronize(); });
    for (const std::string& problem : problems_) EXPECT_EQ(problem, "");
  }

  void forward(std::uint32_t thread, std::uint32_t parameter) {
    trainer_.engine().wait(trainer_.id(parameter), streams_[thread]);
  }
  void backward(std::uint32_t thread, std::uint32_t parameter, std::uint64_t step) {
    const auto elems = static_cast<std::size_t>(trainer_.options().parameters[parameter].elems);
    void* const weight = trainer_.weight(parameter);
    void* const gradient = gradients_[parameter].get();
    const auto kernel = [=, scale = scale_](sim::KernelView& view) {
      const auto weights = view.as<const std::uint16_t>(weight, elems);
      const auto out = view.as<std::uint16_t>(gradient, elems);
      for (std::size_t e = 0; e < elems; ++e) {
        const GradientPoint at{step, parameter, e, half_to_float(weights[e])};
        out[e] = half_from_float(default_gradient(at) * scale);
      }
    };
    trainer_.gpu().launch(streams_[thread], sim::Duration(0), kernel, "produce");
    trainer_.engine().gradient_ready(trainer_.id(parameter), gradient, streams_[thread]);
  }
  void taken(std::uint32_t thread, std::uint32_t parameter) {
    trainer_.engine().wait_gradient_taken(trainer_.id(parameter), streams_[thread]);
    void* const gradient = gradients_[parameter].get();
    const auto elems = static_cast<std::size_t>(trainer_.options().parameters[parameter].elems);
    const auto spoil = [=](sim::KernelView& view) {
      for (std::uint16_t& half : view.as<std::uint16_t>(gradient, elems)) half = 0x7BFF;
    };
    trainer_.gpu().launch(streams_[thread], sim::Duration(0), spoil, "spoil");
  }

 private:
  void guarded(std::uint32_t thread, const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& error) {
      if (problems_[thread].empty()) problems_[thread] = error.what();
    }
  }

  TinyTrainer& trainer_;
  std::barrier<> round_;
  std::vector<NativeStream> streams_;
  std::vector<DeviceBuffer> gradients_;
  std::vector<std::string> problems_ = std::vector<std::string>(kProducers);
  float scale_ = 1.0F;
};

/// The digest after the same steps from one thread on one stream.
std::uint64_t lone_digest(TinyOptions options, std::uint64_t steps) {
  options.config.schedule = Schedule::serial;
  TinyTrainer trainer(std::move(options));
  trainer.start();
  trainer.run(steps);
  return trainer.engine().state_digest();
}

TEST(Threads, SeveralProducersFillOneBucket) {
  constexpr std::uint32_t kParameters = 16;  // 16 x 200 elements: one bucket
  const TinyOptions options = small_options(kParameters, 200);
  const std::vector<plan::ParameterShape> shapes(kParameters, {200, DType::f16});
  const std::array<double, 1> one_node = {1.0};
  ASSERT_EQ(plan::make_layout(shapes, options.config.bucket_bytes, one_node).buckets.size(), 1u);
  TinyTrainer trainer(options);
  trainer.start();
  {
    Producers producers(trainer);
    producers.run(kRepetitions, [&](std::uint32_t thread, std::uint64_t step) {
      // Alternating slices; the order of a thread's own ones changes from step to step.
      for (std::uint32_t k = 0; k < kParameters / kProducers; ++k) {
        const auto turn = static_cast<std::uint32_t>((k + step) % (kParameters / kProducers));
        const std::uint32_t parameter = turn * kProducers + thread;
        producers.forward(thread, parameter);
        producers.backward(thread, parameter, step);
        if (step % 2 == 0) producers.taken(thread, parameter);
      }
    });
  }
  EXPECT_EQ(trainer.engine().state_digest(), lone_digest(options, kRepetitions));
}

TEST(Threads, ProducersShareSplitTensorsAndABounceRing) {
  constexpr std::uint32_t kParameters = 8;  // 8 x 5,000 elements: each split over two buckets
  TinyOptions options = small_options(kParameters, 5000);
  options.config.pinned_slots = 2;
  TinyTrainer trainer(options);
  trainer.start();
  {
    Producers producers(trainer);
    producers.run(kRepetitions / 4, [&](std::uint32_t thread, std::uint64_t step) {
      for (std::uint32_t parameter = thread; parameter < kParameters; parameter += kProducers) {
        producers.forward(thread, parameter);
        producers.backward(thread, parameter, step);
        producers.taken(thread, parameter);
      }
    });
  }
  EXPECT_EQ(trainer.engine().state_digest(), lone_digest(options, kRepetitions / 4));
}

/// Scalars, gradients and updates of an open gate come from threads of the device and of the host
/// while producers give the rest.
TEST(Threads, ProducersMeetUpdatesOfAnOpenGate) {
  constexpr std::uint32_t kParameters = 8;
  for (const std::uint64_t elems : {200U, 5000U}) {
    for (const Placement placement :
         {Placement::host, Placement::device_resident, Placement::fraction}) {
      for (const bool ring : {false, true}) {
        TinyOptions options = small_options(kParameters, elems);
        options.config.max_grad_norm = 0.0;
        options.config.loss_scaling.dynamic = false;
        const std::uint64_t expected = lone_digest(options, kRepetitions / 4);
        options.config.schedule = Schedule::open;
        options.config.placement = placement;
        if (placement == Placement::fraction) {
          options.config.device_fraction = elems == 200 ? 1.0 : 0.5;
        }
        if (ring) options.config.pinned_slots = 2;
        TinyTrainer trainer(options);
        trainer.start();
        {
          Producers producers(trainer);
          producers.run(kRepetitions / 4, [&](std::uint32_t thread, std::uint64_t step) {
            for (std::uint32_t k = 0; k < 2; ++k) {
              const auto turn = static_cast<std::uint32_t>((k + step) % 2);
              const std::uint32_t parameter = thread + kProducers * turn;
              producers.forward(thread, parameter);
              producers.backward(thread, parameter, step);
              if (placement == Placement::host) producers.taken(thread, parameter);
            }
          });
        }
        EXPECT_EQ(trainer.engine().state_digest(), expected)
            << elems << (ring ? " ring" : "") << " placement " << static_cast<int>(placement);
      }
    }
  }
}

TEST(Threads, WaitsMeetGradientsOfOtherParameters) {
  constexpr std::uint32_t kParameters = 8;
  const TinyOptions options = small_options(kParameters, 1500);
  TinyTrainer trainer(options);
  trainer.start();
  {
    Producers producers(trainer);
    producers.run(kRepetitions, [&](std::uint32_t thread, std::uint64_t step) {
      const std::uint32_t first = thread * 2;
      producers.forward(thread, first);
      // From here on threads wait for their second parameter while others give gradients.
      if (thread % 2 == 0) {
        producers.backward(thread, first, step);
        producers.forward(thread, first + 1);
        producers.backward(thread, first + 1, step);
      } else {
        producers.forward(thread, first + 1);
        for (int again = 0; again < 5; ++again) producers.forward(thread, first);
        producers.backward(thread, first + 1, step);
        producers.backward(thread, first, step);
      }
    });
  }
  EXPECT_EQ(trainer.engine().state_digest(), lone_digest(options, kRepetitions));
}

TEST(Threads, TwoEnginesOnTwoDevicesFromTwoThreads) {
  const TinyOptions options = small_options(6, 3000);
  const std::uint64_t expected = lone_digest(options, kRepetitions / 2);
  std::vector<std::uint64_t> digests(2);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        TinyTrainer trainer(options);
        trainer.start();
        trainer.run(kRepetitions / 2);
        digests[t] = trainer.engine().state_digest();
      });
    }
  }
  EXPECT_EQ(digests[0], expected);
  EXPECT_EQ(digests[1], expected);
}

TEST(Threads, TwoEnginesOnOneDeviceFromTwoThreads) {
  TinyOptions options = small_options(6, 3000);
  const std::uint64_t expected = lone_digest(options, kRepetitions / 4);
  options.device.memory_bytes *= 2;
  const sim::Gpu gpu(options.device);
  std::vector<std::uint64_t> digests(2);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        TinyTrainer trainer(gpu, options);
        trainer.start();
        trainer.run(kRepetitions / 4);
        digests[t] = trainer.engine().state_digest();
      });
    }
  }
  EXPECT_EQ(digests[0], expected);
  EXPECT_EQ(digests[1], expected);
}

/// Weights after `steps` steps, all work finished.
std::vector<std::vector<std::uint16_t>> final_weights(TinyTrainer& trainer) {
  std::vector<std::vector<std::uint16_t>> weights;
  for (std::uint32_t i = 0; i < trainer.options().parameters.size(); ++i) {
    const auto elems = static_cast<std::size_t>(trainer.options().parameters[i].elems);
    weights.push_back(
        download<std::uint16_t>(trainer.gpu(), trainer.weight(i), elems, trainer.reader()));
  }
  return weights;
}

TEST(Threads, DestroyedRightAfterStep) {
  TinyOptions options = small_options(6, 3000);
  options.config.max_grad_norm = 0.0;
  options.config.loss_scaling.dynamic = false;
  std::optional<std::vector<std::vector<std::uint16_t>>> expected;
  for (std::uint32_t repetition = 0; repetition < kRepetitions; ++repetition) {
    options.config.pinned_slots =
        repetition % 3 == 0 ? std::optional<std::uint32_t>(2) : std::nullopt;
    options.config.placement = repetition % 5 == 4 ? Placement::device_resident : Placement::host;
    options.config.schedule = repetition % 7 == 6 ? Schedule::open : Schedule::exact;
    options.device.stream_memory_ops = repetition % 2 == 0;
    TinyTrainer trainer(options);
    const sim::Counters before = trainer.gpu().counters();
    trainer.start();
    trainer.run(2);
    if (repetition % 4 == 3) {
      std::jthread([&] { trainer.stop(); });
    } else {
      trainer.stop();
    }
    const sim::Counters after = trainer.gpu().counters();
    EXPECT_EQ(after.live_allocations, before.live_allocations);
    EXPECT_EQ(after.live_streams, before.live_streams);
    EXPECT_EQ(after.live_events, before.live_events);
    EXPECT_EQ(after.live_registrations, before.live_registrations);
    // The destructor let the last refresh finish.
    const auto weights = final_weights(trainer);
    if (!expected) expected = weights;
    ASSERT_EQ(weights, *expected) << "repetition " << repetition;
  }
}

TEST(Threads, DestroyedInTheMiddleOfBackward) {
  TinyOptions options = small_options(6, 3000);
  options.config.max_grad_norm = 0.0;
  options.config.loss_scaling.dynamic = false;
  for (std::uint32_t repetition = 0; repetition < kRepetitions; ++repetition) {
    if (repetition % 2 == 1) options.config.pinned_slots = 2;
    options.config.schedule = repetition % 4 < 2 ? Schedule::open : Schedule::exact;
    TinyTrainer trainer(options);
    const std::uint64_t before = trainer.gpu().counters().live_registrations;
    trainer.start();
    trainer.run(1);
    trainer.forward();
    for (std::uint32_t i = 6; i-- > repetition % 6;) trainer.give_gradient(i);
    trainer.stop();
    EXPECT_EQ(trainer.gpu().counters().live_registrations, before);
  }
}

}  // namespace
}  // namespace outboard::testing
