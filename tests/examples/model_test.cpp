// SPDX-License-Identifier: Apache-2.0
/// The model on a device, with an engine.
#include "model.hpp"

#include <gtest/gtest.h>

#include "text_support.hpp"

namespace text {
namespace {

using outboard::Engine;
namespace sim = outboard::sim;

constexpr ModelShape kShape{.embed = 3, .width = 20, .batch = 12};

TEST(Model, HasTheSizesThatItsShapeForetells) {
  sim::Gpu gpu({.memory_bytes = std::size_t{4} << 20});
  const Model model(gpu, kShape);
  EXPECT_EQ(model.parameter_elems(), kShape.parameter_elems());
  EXPECT_EQ(model.activation_bytes(), kShape.activation_bytes());
  EXPECT_EQ(kShape.parameter_elems(), 256u * 3 + 48 * 20 + 20 + 20 * 20 + 20 + 20 * 256 + 256);
}

TEST(Model, GivesItsMemoryBack) {
  sim::Gpu gpu({.memory_bytes = std::size_t{4} << 20});
  {
    const Model model(gpu, kShape);
    EXPECT_GE(gpu.memory().used_bytes, 4 * kShape.parameter_elems());
  }
  EXPECT_EQ(gpu.memory().used_bytes, 0u);
}

TEST(Model, StartsWithTheSameWeightsForTheSameSeed) {
  sim::Gpu gpu({.memory_bytes = std::size_t{4} << 20});
  const Model model(gpu, kShape);
  EXPECT_EQ(model.initial_weights(1), model.initial_weights(1));
  EXPECT_NE(model.initial_weights(1), model.initial_weights(2));
}

TEST(Model, RefusesADeviceThatIsTooSmall) {
  sim::Gpu gpu({.memory_bytes = 4096});
  try {
    const Model model(gpu, kShape);
    FAIL() << "4 KiB took " << kShape.parameter_elems() << " parameters";
  } catch (const outboard::Error& error) {
    EXPECT_EQ(error.code(), outboard::ErrorCode::out_of_memory);
  }
  EXPECT_EQ(gpu.memory().used_bytes, 0u) << "what had been allocated is given back";
}

TEST(Model, LearnsOneBatchByHeart) {
  sim::Gpu gpu({.memory_bytes = std::size_t{4} << 20});
  Model model(gpu, kShape);
  const auto stream = gpu.create_stream();
  Engine engine(gpu.device(), {.max_grad_norm = 1.0, .check_waits = true});
  const auto group = engine.add_group({.lr = 0.02});
  const auto initial = model.initial_weights(3);
  model.add_to(engine, group, initial);
  engine.commit();
  Random random(4);
  std::vector<std::uint8_t> tokens(ModelShape::token_bytes(12));
  for (auto& byte : tokens) byte = static_cast<std::uint8_t>(random.below(256));
  double loss = 0.0, first = 0.0;
  for (int step = 0; step < 60; ++step) {
    model.set_tokens(tokens, stream);
    model.forward(engine, 12, stream);
    model.loss(12, engine.loss_scale(), &loss, stream);
    model.backward(engine, 12, stream);
    engine.step();
    if (step == 0) first = loss / 12;
  }
  gpu.synchronize(stream);
  EXPECT_NEAR(first, 5.545, 0.5) << "a uniform guess costs ln 256";
  EXPECT_LT(loss / 12, 0.1);
}

}  // namespace
}  // namespace text
