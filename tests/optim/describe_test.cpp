// SPDX-License-Identifier: Apache-2.0
#include "optim/describe.hpp"

#include <gtest/gtest.h>

namespace outboard::optim {
namespace {

TEST(Describe, NamesTheAlgorithmItsDecayAndEveryNumber) {
  const AdamW settings{
      .lr = 6e-4, .beta1 = 0.85, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.125};
  EXPECT_EQ(describe(settings),
            "AdamW, decoupled weight decay 0.125, lr 0.0006, betas 0.85 and 0.95, eps 1e-06");
  EXPECT_EQ(describe(Adam{.weight_decay = 0.5}),
            "Adam, weight decay in the gradient 0.5, lr 0.001, betas 0.9 and 0.999, eps 1e-08");
  EXPECT_EQ(describe(Sgd{.lr = 0.1, .momentum = 0.9, .nesterov = true}),
            "Sgd, weight decay in the gradient 0, lr 0.1, momentum 0.9, dampening 0, nesterov");
  EXPECT_EQ(describe(Lion{.weight_decay = 0.5}),
            "Lion, decoupled weight decay 0.5, lr 0.0001, betas 0.9 and 0.99");
  EXPECT_EQ(
      describe(Adagrad{.lr_decay = 0.5}),
      "Adagrad, weight decay in the gradient 0, lr 0.01, lr_decay 0.5, initial_accumulator 0, "
      "eps 1e-10");
  EXPECT_EQ(describe(Lamb{.weight_decay = 0.5}),
            "Lamb, weight decay inside the trust ratio 0.5, lr 0.001, betas 0.9 and 0.999, eps "
            "1e-06");
}

TEST(Describe, NamesWhatAGroupHasBesideItsRule) {
  const Group plain{Lion{}, {}};
  EXPECT_EQ(describe(plain), describe(plain.rule));
  const Group both{Lion{}, {.rounding = Rounding::stochastic, .seed = 7, .ema_decay = 0.99}};
  EXPECT_EQ(describe(both),
            describe(both.rule) + ", stochastic rounding with seed 7, ema_decay 0.99");
}

}  // namespace
}  // namespace outboard::optim
