// SPDX-License-Identifier: Apache-2.0
// Two engines that one thread calls in turn, call by call: on two devices, each with a clock of its
// own in virtual time, and side by side on one. Each has the bits of a run alone, and neither takes
// what belongs to the other's device.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/drawn_options.hpp"
#include "engine/trajectory.hpp"
#include "support/expect_error.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSeeds = 500;  // of each kind
constexpr std::uint64_t kSteps = 4;

TinyOptions model(bool gated) {
  TinyOptions options = small_model();
  options.digest = false;
  options.device.memory_bytes = std::size_t{8} << 20;  // for both
  if (gated) return options;
  options.config.max_grad_norm = 0.0;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 64.0};
  options.injected.clear();
  return options;
}

TinyOptions draw_options(Draw& draw, bool gated, std::uint64_t seed) {
  TinyOptions options = model(gated);
  options.device.seed = seed;
  draw_device(draw, options.device);
  draw_config(draw, options.config);
  draw_schedule(draw, options.config, gated);
  round_fraction(options);
  draw_trainer(draw, options);
  return options;
}

/// A trainer whose run can stop between any two calls.
class Turns {
 public:
  explicit Turns(TinyTrainer& trainer) : trainer_(trainer) {}

  [[nodiscard]] bool done() const { return trainer_.steps() == kSteps; }
  void next() {
    const auto count = static_cast<std::uint32_t>(trainer_.in_use());
    if (!forward_) {
      trainer_.forward();
      forward_ = true;
      left_ = count;
    } else if (left_ > 0) {
      --left_;
      if (trainer_.options().has_gradient(trainer_.steps(), left_)) trainer_.give_gradient(left_);
    } else {
      trainer_.finish();
      forward_ = false;
    }
  }

 private:
  TinyTrainer& trainer_;
  bool forward_ = false;
  std::uint32_t left_ = 0;
};

/// Some calls of the one, then of the other.
void interleave(Draw& draw, TinyTrainer& first, TinyTrainer& second) {
  Turns a(first);
  Turns b(second);
  while (!a.done() || !b.done()) {
    Turns& turns = draw.coin() ? a : b;
    for (std::uint64_t n = 1 + draw.below(4); n > 0 && !turns.done(); --n) turns.next();
  }
}

std::uint64_t digest_alone(bool gated) {
  TinyOptions options = model(gated);
  options.config.schedule = Schedule::serial;
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(kSteps);
  return trainer.engine().state_digest();
}

void expect_both_right(std::uint64_t seed, bool one_device, sim::Mode mode) {
  static const std::array<std::uint64_t, 2> digests = {digest_alone(false), digest_alone(true)};
  Draw draw(seed);
  const std::array<bool, 2> gated = {draw.coin(), draw.coin()};
  std::array<TinyOptions, 2> options;
  for (std::size_t k = 0; k < 2; ++k) {
    options[k] = draw_options(draw, gated[k], 2 * seed + k);
    options[k].device.mode = mode;
    if (mode == sim::Mode::threads) options[k].device.max_random_delay = sim::Duration(0);
  }
  SCOPED_TRACE(describe(options[0]) + "\n" + describe(options[1]));
  const sim::Gpu gpu(options[0].device);
  TinyTrainer first(gpu, options[0]);
  TinyTrainer second(one_device ? gpu : sim::Gpu(options[1].device), options[1]);
  first.start();
  second.start();
  interleave(draw, first, second);
  if (draw.coin()) {  // the other's work must not go with it
    EXPECT_EQ(first.engine().state_digest(), digests[gated[0] ? 1 : 0]);
    first.stop();
  }
  EXPECT_EQ(second.engine().state_digest(), digests[gated[1] ? 1 : 0]);
  if (!first.started()) return;
  EXPECT_EQ(first.engine().state_digest(), digests[gated[0] ? 1 : 0]);
}

TEST(TwoEngines, OnTwoDevicesInTurn) {
  for_each_seed(
      kSeeds, [](std::uint64_t seed) { expect_both_right(seed, false, sim::Mode::virtual_time); });
}

TEST(TwoEngines, OnOneDeviceInTurn) {
  for_each_seed(kSeeds,
                [](std::uint64_t seed) { expect_both_right(seed, true, sim::Mode::virtual_time); });
}

TEST(TwoEngines, InRealTimeInTurn) {
  for_each_seed(
      20, [](std::uint64_t seed) { expect_both_right(seed, seed % 2 == 0, sim::Mode::threads); });
}

/// Whatever lies on the other device is refused by name, and both go on with the right bits.
void expect_refused(TinyTrainer& trainer, TinyTrainer& other, std::uint32_t i) {
  Engine& engine = trainer.engine();
  const ParameterId id = trainer.id(i);
  const std::string name = "'w" + std::to_string(i) + "'";
  expect_error(ErrorCode::invalid_argument, {"gradient_ready()", name, "gradient", "address"},
               [&] { engine.gradient_ready(id, other.gradient(i), trainer.writer()); });
  expect_error(ErrorCode::invalid_argument, {"stream"},
               [&] { engine.gradient_ready(id, trainer.gradient(i), other.writer()); });
  expect_error(ErrorCode::invalid_argument, {"stream"}, [&] { engine.wait(id, other.reader()); });
  ParameterSpec spec = trainer.spec(i);
  spec.name = "stranger";
  spec.data = other.weight(i);
  expect_error(ErrorCode::invalid_argument, {"add_parameter()", "'stranger'", "data"},
               [&] { engine.add_parameter(spec); });
}

TEST(TwoEngines, TakeNothingOfTheOthersDevice) {
  for (const sim::Mode mode : {sim::Mode::virtual_time, sim::Mode::threads}) {
    TinyOptions options = model(true);
    options.device.mode = mode;
    TinyTrainer first(options);
    TinyTrainer second(options);
    first.start();
    second.start();
    for (std::uint64_t s = 0; s < kSteps; ++s) {
      for (const std::uint32_t i : {0U, 3U, 8U}) {
        first.forward();
        second.forward();
        expect_refused(first, second, i);
        expect_refused(second, first, i);
      }
      for (TinyTrainer* trainer : {&first, &second}) {
        trainer->backward();
        trainer->finish();
      }
    }
    EXPECT_EQ(first.engine().state_digest(), digest_alone(true));
    EXPECT_EQ(second.engine().state_digest(), digest_alone(true));
  }
}

}  // namespace
}  // namespace outboard::testing
