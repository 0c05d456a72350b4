// SPDX-License-Identifier: Apache-2.0
#include "shape.hpp"

#include <gtest/gtest.h>

#include <string>

#include "outboard/error.hpp"

namespace gpt {
namespace {

TEST(GptShape, CountsTheParametersOfGpt2) {
  const GptShape shape{.layers = 12, .width = 768, .heads = 12, .context = 1024, .vocab = 50257};
  EXPECT_EQ(shape.parameter_elems(), 124439808u);  // as published for the smallest GPT-2
  EXPECT_EQ(shape.weight_bytes(), 2 * 124439808u);
}

TEST(GptShape, RingHoldsTwoBlocks) {
  GptShape shape{.layers = 5, .width = 64, .heads = 2};
  EXPECT_EQ(shape.gradient_bytes(GradBuffers::full), 2 * shape.parameter_elems());
  EXPECT_EQ(shape.gradient_bytes(GradBuffers::full) - shape.gradient_bytes(GradBuffers::ring),
            2 * 3 * shape.block_elems());
  shape.layers = 1;
  EXPECT_EQ(shape.gradient_bytes(GradBuffers::full), shape.gradient_bytes(GradBuffers::ring));
}

TEST(GptShape, NamesWhatIsWrong) {
  const auto expect = [](const GptShape& shape, const std::string& part) {
    try {
      shape.validate();
      ADD_FAILURE() << "no error with " << part;
    } catch (const outboard::Error& error) {
      EXPECT_EQ(error.code(), outboard::ErrorCode::invalid_config);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  GptShape{}.validate();
  expect({.layers = 0}, "number of layers is 0; allowed are 1 to 1024");
  expect({.width = 100, .heads = 3}, "100 is no multiple of its heads, 3");
  expect({.context = 5000}, "context is 5000");
  expect({.vocab = 65537}, "vocabulary is 65537");
  expect({.batch = 0}, "batch is 0");
  expect({.width = 4096, .heads = 4, .context = 2048}, "context of 2048 and heads 1024 wide");
  expect({.width = 8192, .heads = 1, .context = 40}, "at most 8388608 are allowed");
}

TEST(GptProducts, AreThoseOfTheFormulas) {
  const GptShape shape{
      .layers = 3, .width = 32, .heads = 2, .context = 64, .vocab = 100, .batch = 4};
  const double n = 256.0, c = 32.0;
  const double block = 24.0 * n * c * c;
  const double scores = 2.0 * n * 64.0 * c;  // one product of attention: one block of 64 queries
  const double logits = 2.0 * n * c * 100.0;
  const auto flops = [&](bool checkpointing, Pass pass) {
    return total_flops(matrix_products(shape, shape.batch, checkpointing, pass));
  };
  EXPECT_DOUBLE_EQ(flops(true, Pass::forward), 3.0 * (block + 2.0 * scores) + logits);
  EXPECT_DOUBLE_EQ(flops(false, Pass::training), 3.0 * (3.0 * block + 7.0 * scores) + 4.0 * logits);
  // All but the last block again, without their last product.
  EXPECT_DOUBLE_EQ(flops(true, Pass::training) - flops(false, Pass::training),
                   2.0 * (16.0 * n * c * c + 2.0 * scores));
}

TEST(GptProducts, AttentionLeavesOutWhatIsLater) {
  const GptShape shape{.layers = 1, .width = 8, .heads = 1, .context = 130, .batch = 1};
  double flops = 0.0;
  for (const Product& product : matrix_products(shape, 1, false, Pass::forward)) {
    if (product.name == "attention, scores") flops += product.flops();
  }
  EXPECT_DOUBLE_EQ(flops, 2.0 * 8.0 * (64.0 * 64.0 + 64.0 * 128.0 + 2.0 * 130.0));
}

TEST(GptProducts, CanBeTimed) {
  EXPECT_GT(sgemm_seconds({{"one", 16, 16, 16, 3}}, 2), 0.0);
}

}  // namespace
}  // namespace gpt
