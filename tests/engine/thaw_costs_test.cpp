// SPDX-License-Identifier: Apache-2.0
/// What a later commit() leaves steps to pay: nothing.
#include <gtest/gtest.h>

#include "engine/allocation_counter.hpp"
#include "engine/late_models.hpp"

namespace outboard::testing {
namespace {

class LateSteps : public ::testing::TestWithParam<Flavour> {};
INSTANTIATE_TEST_SUITE_P(Ways, LateSteps, ::testing::ValuesIn(late_ways()),
                         [](const auto& test) { return flavour_name(test.param); });

TEST_P(LateSteps, AllocateNothing) {
  if (!allocations_counted()) GTEST_SKIP() << "a sanitizer owns malloc";
  TinyTrainer trainer(mixed_parameters(GetParam()));
  trainer.start_with(2);
  trainer.run(2);
  trainer.add_parameters(6);
  trainer.commit();
  trainer.run(2);
  trainer.add_parameters(8);
  trainer.commit();
  trainer.run(4);
  trainer.engine().synchronize();
  trainer.gpu().synchronize();
  start_counting();
  for (int i = 0; i < 8; ++i) trainer.step();
  trainer.engine().synchronize();
  EXPECT_EQ(stop_counting(), 0U) << first_allocation();
}

}  // namespace
}  // namespace outboard::testing
