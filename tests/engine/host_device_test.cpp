// SPDX-License-Identifier: Apache-2.0
// The host as the device: weights and gradients in ordinary memory, the calling thread as a stream.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/drawn_options.hpp"
#include "outboard/half.hpp"
#include "outboard/outboard.hpp"
#include "support/expect_error.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::testing {
namespace {

constexpr NativeStream kCaller{0};

/// A trainer on the cpu: plain arrays, no streams, no events.
class CpuTrainer {
 public:
  explicit CpuTrainer(Config config, std::vector<std::size_t> sizes = {70000, 3, 5000})
      : engine_(std::make_unique<Engine>(Device::host(), std::move(config))) {
    const GroupId group = engine_->add_group(AdamW{.lr = 1e-2, .weight_decay = 0.1});
    for (std::uint32_t i = 0; i < sizes.size(); ++i) {
      weights_.emplace_back(sizes[i]);
      gradients_.emplace_back(sizes[i]);
      for (std::size_t k = 0; k < sizes[i]; ++k) weights_[i][k] = mixed_unit(7, i, k);
      ids_.push_back(engine_->add_parameter({.name = "w" + std::to_string(i),
                                             .dtype = DType::f32,
                                             .elems = sizes[i],
                                             .data = weights_[i].data(),
                                             .group = group}));
    }
    engine_->commit();
  }

  /// Every gradient depends on the weights that wait() has handed over.
  StepResult step(bool wait = true) {
    for (const ParameterId id : ids_) {
      if (wait) engine_->wait(id, kCaller);
    }
    const auto scale = static_cast<float>(engine_->loss_scale());
    for (std::uint32_t i = 0; i < ids_.size(); ++i) {
      for (std::size_t k = 0; k < weights_[i].size(); ++k) {
        gradients_[i][k] = scale * (0.5F * weights_[i][k] + mixed_unit(steps_, i, k));
      }
      engine_->gradient_ready(ids_[i], gradients_[i].data(), kCaller);
    }
    ++steps_;
    return engine_->step();
  }
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] ParameterId id(std::size_t i) const { return ids_[i]; }
  [[nodiscard]] std::vector<float>& weights(std::size_t i) { return weights_[i]; }
  [[nodiscard]] std::vector<float>& gradients(std::size_t i) { return gradients_[i]; }
  [[nodiscard]] std::vector<float> master(std::size_t i) {
    std::vector<float> out(weights_[i].size());
    engine_->read_state(ids_[i], "master", out);
    return out;
  }

 private:
  std::vector<std::vector<float>> weights_, gradients_;
  std::vector<ParameterId> ids_;
  std::uint64_t steps_ = 0;
  std::unique_ptr<Engine> engine_;  // last: it ends before the memory does
};

Config config_of(Schedule schedule, std::uint32_t threads = 1) {
  Config config;
  config.max_grad_norm = 1.0;
  config.loss_scaling = {.dynamic = false, .initial_scale = 256.0};
  config.schedule = schedule;
  config.bucket_bytes = std::size_t{64} << 10;
  config.host.threads_per_node = threads;
  return config;
}

TEST(HostDevice, WaitHandsTheRefreshedWeightToTheCaller) {
  CpuTrainer trainer(config_of(Schedule::exact, 2));
  for (int step = 0; step < 20; ++step) {
    ASSERT_TRUE(trainer.step().applied());
    for (std::size_t i = 0; i < 3; ++i) {
      trainer.engine().wait(trainer.id(i), kCaller);
      ASSERT_EQ(trainer.weights(i), trainer.master(i)) << "step " << step << ", parameter " << i;
    }
  }
}

TEST(HostDevice, EveryScheduleAndThreadCountHasTheSameBits) {
  std::vector<std::uint64_t> digests;
  for (const Schedule schedule : {Schedule::exact, Schedule::blocking, Schedule::serial}) {
    for (const std::uint32_t threads : {1U, 3U}) {
      CpuTrainer trainer(config_of(schedule, threads));
      for (int step = 0; step < 6; ++step) ASSERT_TRUE(trainer.step().applied());
      digests.push_back(trainer.engine().state_digest());
    }
  }
  for (const std::uint64_t digest : digests) EXPECT_EQ(digest, digests.front());
}

TEST(HostDevice, HasTheSoftwareGpusBits) {
  TinyOptions options = small_model();
  TinyTrainer fenced(options);
  TinyTrainer plain(sim::Gpu(Device::host()), options);
  fenced.start();
  plain.start();
  for (std::uint64_t step = 0; step < 5; ++step) {
    const TinyStep a = fenced.step();
    const TinyStep b = plain.step();
    EXPECT_EQ(a.digest, b.digest) << "step " << step;
    EXPECT_EQ(a.loss, b.loss) << "step " << step;
  }
}

TEST(HostDevice, AGradientMayBeOverwrittenOnceItIsTaken) {
  CpuTrainer trainer(config_of(Schedule::exact, 2)), untouched(config_of(Schedule::exact, 2));
  for (int step = 0; step < 4; ++step) {
    trainer.engine().synchronize();
    for (std::size_t i = 0; i < 3; ++i) {
      trainer.engine().wait(trainer.id(i), kCaller);
      for (float& g : trainer.gradients(i)) g = 256.0F;
      trainer.engine().gradient_ready(trainer.id(i), trainer.gradients(i).data(), kCaller);
      trainer.engine().wait_gradient_taken(trainer.id(i), kCaller);
      for (float& g : trainer.gradients(i)) g = -1e30F;
      untouched.engine().wait(untouched.id(i), kCaller);
      for (float& g : untouched.gradients(i)) g = 256.0F;
      untouched.engine().gradient_ready(untouched.id(i), untouched.gradients(i).data(), kCaller);
    }
    ASSERT_TRUE(trainer.engine().step().applied());
    ASSERT_TRUE(untouched.engine().step().applied());
  }
  EXPECT_EQ(trainer.engine().state_digest(), untouched.engine().state_digest());
}

TEST(HostDevice, RefusesAddressesThatTheProcessHasNot) {
  std::vector<float> some(16);  // before the engine, which writes it until its end
  Engine engine(Device::host(), config_of(Schedule::exact));
  const GroupId group = engine.add_group(AdamW{});
  const std::size_t bytes = std::size_t{1} << 20;
  void* hole = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* read_only = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  ASSERT_NE(read_only, MAP_FAILED);
  sim::Gpu gpu(sim::Options{});
  void* fenced = gpu.allocate(4096);
  const auto add = [&](void* data, std::uint64_t elems) {
    (void)engine.add_parameter(
        {.name = "w", .dtype = DType::f32, .elems = elems, .data = data, .group = group});
  };
  const auto refused = [&](const char* why, void* data, std::uint64_t elems) {
    expect_error(ErrorCode::invalid_argument, {"add_parameter()", "'w'", why},
                 [&] { add(data, elems); });
  };
  refused("no `data`", nullptr, 4);
  refused("aligned", reinterpret_cast<std::byte*>(some.data()) + 1, 4);
  refused("may write", hole, 4);
  refused("may write", read_only, 4);
  refused("may write", fenced, 4);
  refused("may write", some.data(), std::uint64_t{1} << 40);
  refused("more `elems` than memory", some.data(), UINT64_MAX);
  add(some.data(), 16);  // and nothing of the above was kept: the name is free
  engine.commit();
  engine.wait({0}, kCaller);
  expect_error(ErrorCode::invalid_argument, {"gradient_ready()", "may read"},
               [&] { engine.gradient_ready({0}, hole, kCaller); });
  EXPECT_NO_THROW(engine.gradient_ready({0}, read_only, kCaller));
  EXPECT_TRUE(engine.step().applied());
  ::munmap(hole, bytes);
  ::munmap(read_only, bytes);
}

TEST(HostDevice, SeveralThreadsMayGiveGradients) {
  CpuTrainer alone(config_of(Schedule::exact, 2), {5000, 5000, 5000, 5000});
  CpuTrainer shared(config_of(Schedule::exact, 2), {5000, 5000, 5000, 5000});
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(alone.step().applied());
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        shared.engine().wait(shared.id(i), kCaller);
        for (std::size_t k = 0; k < 5000; ++k) {
          shared.gradients(i)[k] = 256.0F * (0.5F * shared.weights(i)[k] +
                                             mixed_unit(static_cast<std::uint64_t>(step), i, k));
        }
        shared.engine().gradient_ready(shared.id(i), shared.gradients(i).data(), kCaller);
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(shared.engine().step().applied());
  }
  EXPECT_EQ(alone.engine().state_digest(), shared.engine().state_digest());
}

// --- what a trainer that has its own way needs --------------------------------------------------

TEST(GradientDivisor, DividesOutAnyNumber) {
  Config config = config_of(Schedule::exact);
  config.max_grad_norm = 0.5;
  config.loss_scaling.initial_scale = 1.0;
  std::vector<float> expected;
  double norm = 0.0;
  for (const double divisor : {1.0, 3.0, 1024.0, 0.37}) {
    CpuTrainer trainer(config, {64});
    for (std::size_t k = 0; k < 64; ++k) {
      trainer.gradients(0)[k] = static_cast<float>(divisor) * mixed_unit(1, 0, k);
    }
    trainer.engine().wait(trainer.id(0), kCaller);
    trainer.engine().gradient_ready(trainer.id(0), trainer.gradients(0).data(), kCaller);
    trainer.engine().set_gradient_divisor(divisor);  // a trainer's own clipping is known late
    const StepResult result = trainer.engine().step();
    const std::vector<float> master = trainer.master(0);
    if (expected.empty()) expected = master, norm = result.grad_norm;
    EXPECT_NEAR(result.grad_norm, norm, 1e-6 * norm) << divisor;
    EXPECT_LT(result.clip, 1.0);
    for (std::size_t k = 0; k < 64; ++k) EXPECT_NEAR(master[k], expected[k], 1e-7) << divisor;
  }
}

TEST(GradientDivisor, OfAPowerOfTwoChangesNoBit) {
  CpuTrainer plain(config_of(Schedule::exact)), scaled(config_of(Schedule::exact));
  for (int step = 0; step < 4; ++step) {
    (void)plain.step();
    const double divisor = step % 2 == 0 ? 0x1p-9 : 0x1p12;
    for (std::size_t i = 0; i < 3; ++i) {
      scaled.engine().wait(scaled.id(i), kCaller);
      for (std::size_t k = 0; k < scaled.weights(i).size(); ++k) {
        scaled.gradients(i)[k] =
            static_cast<float>(256.0 * divisor) *
            (0.5F * scaled.weights(i)[k] +
             mixed_unit(static_cast<std::uint64_t>(step), static_cast<std::uint32_t>(i), k));
      }
      scaled.engine().gradient_ready(scaled.id(i), scaled.gradients(i).data(), kCaller);
    }
    scaled.engine().set_gradient_divisor(divisor);
    EXPECT_TRUE(scaled.engine().step().applied());
  }
  EXPECT_EQ(plain.engine().state_digest(), scaled.engine().state_digest());
}

TEST(GradientDivisor, RefusesWhatCannotBeOne) {
  CpuTrainer trainer(config_of(Schedule::exact), {64});
  for (const double bad : {0.0, -1.0, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    expect_error(ErrorCode::invalid_argument, {"set_gradient_divisor()", "2^-100"},
                 [&] { trainer.engine().set_gradient_divisor(bad); });
  }
}

TEST(ClippingLimit, ChangesBetweenSteps) {
  CpuTrainer trainer(config_of(Schedule::exact));
  trainer.engine().set_max_grad_norm(0.0);
  EXPECT_EQ(trainer.step().clip, 1.0);
  trainer.engine().set_max_grad_norm(0.5);
  const StepResult clipped = trainer.step();
  EXPECT_EQ(clipped.clip, 0.5 / (clipped.grad_norm + 1e-6));
  expect_error(ErrorCode::invalid_config, {"max_grad_norm", "-1"},
               [&] { trainer.engine().set_max_grad_norm(-1.0); });
  EXPECT_LT(trainer.step().clip, 1.0) << "what was refused has changed nothing";
}

TEST(Rebind, GoesOnWhereTheWeightNowLies) {
  CpuTrainer moved(config_of(Schedule::exact, 2)), still(config_of(Schedule::exact, 2));
  std::vector<std::vector<float>> old;
  for (int step = 0; step < 6; ++step) {
    for (std::size_t i = 0; step % 2 == 1 && i < 3; ++i) {
      moved.engine().wait(moved.id(i), kCaller);
      std::vector<float> elsewhere = moved.weights(i);
      moved.engine().rebind(moved.id(i), elsewhere.data());
      std::swap(moved.weights(i), elsewhere);
      for (float& x : elsewhere) x = 77.0F;
      old.push_back(std::move(elsewhere));  // kept, to see that nobody writes it any more
    }
    ASSERT_TRUE(moved.step().applied());
    ASSERT_TRUE(still.step().applied());
  }
  EXPECT_EQ(moved.engine().state_digest(), still.engine().state_digest());
  for (std::size_t i = 0; i < 3; ++i) {
    moved.engine().wait(moved.id(i), kCaller);
    EXPECT_EQ(moved.weights(i), moved.master(i)) << i;
  }
  for (const auto& left : old) {
    for (const float x : left) ASSERT_EQ(x, 77.0F);
  }
}

TEST(Rebind, RefusesAndLeavesTheWeightWhereItWas) {
  std::vector<float> room(64), wide(128);
  CpuTrainer trainer(config_of(Schedule::exact), {64, 64});
  Engine& engine = trainer.engine();
  const auto refused = [&](ErrorCode code, std::initializer_list<std::string_view> words,
                           void* data) {
    expect_error(code, words, [&] { engine.rebind(trainer.id(0), data); });
  };
  refused(ErrorCode::invalid_argument, {"rebind()", "'w0'", "no `data`"}, nullptr);
  refused(ErrorCode::invalid_argument, {"rebind()", "overlaps 'w1'"},
          trainer.weights(1).data() + 8);
  refused(ErrorCode::invalid_argument, {"rebind()", "aligned"},
          reinterpret_cast<std::byte*>(room.data()) + 2);
  engine.wait(trainer.id(0), kCaller);
  engine.gradient_ready(trainer.id(0), trainer.gradients(0).data(), kCaller);
  refused(ErrorCode::protocol_error, {"rebind()", "pending"}, room.data());
  (void)engine.step();
  refused(ErrorCode::protocol_error, {"rebind()", "wait()"}, room.data());
  engine.wait(trainer.id(0), kCaller);
  EXPECT_EQ(trainer.weights(0), trainer.master(0));
  // Half over its own old place: what a trainer that grows a buffer does.
  engine.rebind(trainer.id(0), wide.data());
  EXPECT_NO_THROW(engine.rebind(trainer.id(0), wide.data() + 32));
}

TEST(WriteState, MakesAnotherRunGoOnWithTheSameBits) {
  CpuTrainer first(config_of(Schedule::exact)), second(config_of(Schedule::exact));
  for (int step = 0; step < 3; ++step) (void)first.step();
  for (int step = 0; step < 3; ++step) (void)second.step();
  for (int step = 0; step < 2; ++step) (void)second.step();  // and is elsewhere now
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<std::vector<float>> streams;
    std::vector<Engine::StateSource> sources;
    for (const auto name : first.engine().state_streams(first.id(i))) {
      auto& values = streams.emplace_back(first.weights(i).size());
      first.engine().read_state(first.id(i), name, values);
    }
    std::size_t next = 0;
    for (const auto name : first.engine().state_streams(first.id(i))) {
      sources.push_back({name, streams[next++]});
    }
    second.engine().write_state(second.id(i), sources, first.engine().step_count(first.id(i)));
    EXPECT_EQ(second.weights(i), streams.front()) << "the device's weight follows its master";
  }
  EXPECT_EQ(second.engine().state_digest(), first.engine().state_digest());
}

TEST(WriteState, LeavesWhatIsNotGiven) {
  CpuTrainer trainer(config_of(Schedule::exact), {64});
  (void)trainer.step();
  const std::vector<float> before = trainer.master(0), zeros(64);
  const Engine::StateSource source{"exp_avg", zeros};
  trainer.engine().write_state(trainer.id(0), {&source, 1});
  std::vector<float> exp_avg(64, 1.0F);
  trainer.engine().read_state(trainer.id(0), "exp_avg", exp_avg);
  EXPECT_EQ(exp_avg, zeros);
  EXPECT_EQ(trainer.master(0), before);
  EXPECT_EQ(trainer.engine().step_count(trainer.id(0)), 1U);
}

TEST(WriteState, RefusesAndChangesNothing) {
  CpuTrainer trainer(config_of(Schedule::exact), {64});
  (void)trainer.step();
  Engine& engine = trainer.engine();
  const std::uint64_t before = engine.state_digest();
  std::vector<float> good(64, 0.5F), bad(64, 0.5F), few(63);
  bad[9] = std::numeric_limits<float>::quiet_NaN();
  const auto refused = [&](std::initializer_list<std::string_view> words,
                           std::vector<Engine::StateSource> sources) {
    expect_error(ErrorCode::invalid_argument, words,
                 [&] { engine.write_state(trainer.id(0), sources, 5); });
  };
  refused({"write_state()", "'w0'", "nan", "element 9", "exp_avg"},
          {{"master", good}, {"exp_avg", bad}});
  refused({"write_state()", "no stream 'momentum'", "exp_avg_sq"}, {{"momentum", good}});
  refused({"write_state()", "64 elements", "63"}, {{"master", few}});
  EXPECT_EQ(engine.state_digest(), before);
  engine.wait(trainer.id(0), kCaller);
  engine.gradient_ready(trainer.id(0), trainer.gradients(0).data(), kCaller);
  expect_error(ErrorCode::protocol_error, {"write_state()", "pending"}, [&] {
    const Engine::StateSource source{"master", good};
    engine.write_state(trainer.id(0), {&source, 1}, 5);
  });
}

}  // namespace
}  // namespace outboard::testing
