// SPDX-License-Identifier: Apache-2.0
/// Streams that read weights beside the training stream: no upload overtakes them, and the engine
/// keeps nothing of those that have gone.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/flavours.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

using std::chrono::milliseconds;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::size_t kElems = 5000;

class Readers : public ::testing::TestWithParam<Flavour> {};
INSTANTIATE_TEST_SUITE_P(Ways, Readers, ::testing::ValuesIn(all_flavours()),
                         [](const auto& test) { return flavour_name(test.param); });
/// Where a reader can be made to outlive step().
using TimedReaders = Readers;
INSTANTIATE_TEST_SUITE_P(Ways, TimedReaders,
                         ::testing::ValuesIn(flavours_where([](const Flavour& flavour) {
                           return flavour.mode == sim::Mode::virtual_time;
                         })),
                         [](const auto& test) { return flavour_name(test.param); });

/// What happens between a reader's wait() and the step that changes the weights.
enum class Between { nothing, skipped_step, empty_step, discard };

struct Validation {
  bool outlived_step = false;  ///< the reader still had work when the applied step() returned
  std::uint64_t new_elems = 0;
};

/// A validation pass on a stream of its own, 50 ms long, that looks at the weights all the time.
Validation validate(const Flavour& flavour, Between between, std::uint64_t seed) {
  constexpr std::uint64_t kLooks = 50;
  sim::Options device = flavour.device();
  device.seed = seed;
  ManualTrainer trainer(flavour.apply({}), device);
  Engine& engine = *trainer.engine;
  const NativeStream validation = trainer.gpu.create_stream("validation");
  const GroupId group = engine.add_group({.lr = 0.5});
  const ParameterId p = trainer.add("p", std::vector<float>(kElems, 1.0F), group);
  engine.commit();
  const std::vector<float> good(kElems, 1.0F), bad(kElems, kInf);
  void* const good_gradient = trainer.make(good);
  void* const bad_gradient = trainer.make(bad);
  engine.wait(p, validation);
  std::uint64_t looks = 0;
  Validation out;
  for (std::uint64_t i = 0; i < kLooks; ++i) {
    trainer.gpu.launch(validation, milliseconds(1), [&, w = trainer.weight(p)](auto& view) {
      ++looks;
      for (const auto bits : view.template as<const std::uint16_t>(w, kElems)) {
        out.new_elems += bits == 0x3C00 ? 0 : 1;
      }
    });
  }
  trainer.wait_all();
  if (between == Between::skipped_step) {
    engine.gradient_ready(p, bad_gradient, trainer.stream);
    EXPECT_TRUE(engine.step().skipped());
  } else if (between == Between::empty_step) {
    EXPECT_EQ(engine.step().outcome, StepOutcome::empty);
  } else if (between == Between::discard) {
    engine.gradient_ready(p, bad_gradient, trainer.stream);
    engine.discard();
  }
  engine.gradient_ready(p, good_gradient, trainer.stream);
  EXPECT_TRUE(engine.step().applied());
  out.outlived_step = looks < kLooks;
  engine.synchronize();
  trainer.gpu.synchronize();
  EXPECT_EQ(looks, kLooks);
  EXPECT_NE(trainer.weight_bits(p)[0], 0x3C00) << "the step changed no weight";
  trainer.engine.reset();
  trainer.gpu.destroy_stream(validation);
  return out;
}

TEST_P(TimedReaders, SeeOldWeightsOnlyWhateverCameBeforeTheUpdate) {
  for (const Between between :
       {Between::nothing, Between::skipped_step, Between::empty_step, Between::discard}) {
    std::uint64_t outlived = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      const Validation seen = validate(GetParam(), between, seed);
      EXPECT_EQ(seen.new_elems, 0u) << "case " << static_cast<int>(between) << ", seed " << seed;
      outlived += seen.outlived_step ? 1 : 0;
    }
    // A serial step returns when all is uploaded, so behind the reader.
    if (GetParam().schedule == Schedule::exact) {
      EXPECT_GT(outlived, 0u) << "step() always waited for the reader: nothing was tried";
    }
  }
}

TEST_P(Readers, ThatComeAndGoLeaveNoEventBehind) {
  ManualTrainer trainer(GetParam().apply({}), GetParam().device());
  Engine& engine = *trainer.engine;
  const GroupId group = engine.add_group({});
  const ParameterId p = trainer.add("p", std::vector<float>(kElems, 1.0F), group);
  engine.commit();
  void* const good = trainer.make(std::vector<float>(kElems, 1.0F));
  void* const bad = trainer.make(std::vector<float>(kElems, kInf));
  const auto step = [&](bool skip) {
    const NativeStream stream = trainer.gpu.create_stream("short-lived");
    engine.wait(p, stream);
    engine.gradient_ready(p, skip ? bad : good, stream);
    EXPECT_EQ(engine.step().skipped(), skip);
    engine.synchronize();
    trainer.gpu.synchronize();
    trainer.gpu.destroy_stream(stream);
  };
  step(true);  // its readers stay until the next update is ordered behind them
  step(false);
  const std::uint64_t events = trainer.gpu.counters().live_events;
  for (int i = 0; i < 50; ++i) {
    step(i % 10 == 9);
    ASSERT_EQ(trainer.gpu.counters().live_events, events) << "after " << i + 1 << " steps";
  }
}

}  // namespace
}  // namespace outboard::testing
