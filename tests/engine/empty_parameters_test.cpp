// SPDX-License-Identifier: Apache-2.0
/// Parameters without an element, and nodes without a part of one: they take part in every step,
/// and what has elements comes out as if they were not there.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "engine/flavours.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

std::vector<Flavour> on_many_nodes() {
  std::vector<Flavour> flavours = all_flavours();
  for (const std::size_t nodes : {2U, 8U}) {
    for (const sim::Mode mode : {sim::Mode::virtual_time, sim::Mode::threads}) {
      Flavour flavour;
      flavour.name = (mode == sim::Mode::threads ? "threads_on_" : "virtual_on_") +
                     std::to_string(nodes) + "_nodes";
      flavour.mode = mode;
      flavour.topology = "numa:" + std::to_string(nodes) + " core:1 pu:1";
      flavours.push_back(flavour);
    }
  }
  return flavours;
}

class EmptyParameters : public ::testing::TestWithParam<Flavour> {};
INSTANTIATE_TEST_SUITE_P(Ways, EmptyParameters, ::testing::ValuesIn(on_many_nodes()),
                         [](const auto& test) { return test.param.name; });

/// The sizes of the parameters of each group.
using Sizes = std::vector<std::vector<std::size_t>>;

struct Outcome {
  std::vector<ManualTrainer::State> states;  ///< of the parameters that have elements
  std::vector<double> norms;
};

float value_of(std::size_t parameter, std::size_t element, int step) {
  return std::sin(static_cast<float>(1 + 7 * parameter + 3 * element) + static_cast<float>(step));
}

/// `steps` steps, clipped, of the sizes given; empty parameters have a gradient in every other one.
/// Parameters that have elements are numbered alone, so that empty ones do not change their values.
Outcome train(const Flavour& flavour, const Sizes& sizes, int steps) {
  Config config;
  config.max_grad_norm = 0.5;
  ManualTrainer trainer(flavour.apply(config), flavour.device());
  std::vector<ParameterId> full, empty;
  std::vector<std::size_t> full_sizes;
  for (const std::vector<std::size_t>& group_sizes : sizes) {
    const GroupId group = trainer.engine->add_group({.lr = 0.01, .weight_decay = 0.1});
    for (const std::size_t size : group_sizes) {
      std::vector<float> initial(size);
      for (std::size_t i = 0; i < size; ++i) initial[i] = value_of(full.size(), i, 0);
      const std::string name = (size == 0 ? "empty" : "w") + std::to_string(full.size()) + "." +
                               std::to_string(empty.size());
      (size == 0 ? empty : full).push_back(trainer.add(name, initial, group));
      if (size > 0) full_sizes.push_back(size);
    }
  }
  trainer.engine->commit();
  Outcome outcome;
  for (int step = 1; step <= steps; ++step) {
    ManualTrainer::Gradients gradients;
    for (std::size_t k = 0; k < full.size(); ++k) {
      std::vector<float> gradient(full_sizes[k]);
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = value_of(k, i, step);
      gradients.emplace_back(full[k], gradient);
    }
    for (const ParameterId id : empty) {
      if (step % 2 == 0) gradients.emplace_back(id, std::vector<float>());
    }
    const StepResult result = trainer.step(gradients);
    EXPECT_EQ(result.applied(), !full.empty()) << step;
    outcome.norms.push_back(result.grad_norm);
  }
  for (const ParameterId id : empty) {
    const ManualTrainer::State state = trainer.state(id);
    EXPECT_EQ(state.t, 0U);
    EXPECT_TRUE(state.p.empty() && state.weight.empty());
  }
  for (const ParameterId id : full) outcome.states.push_back(trainer.state(id));
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.norms, b.norms);
  ASSERT_EQ(a.states.size(), b.states.size());
  for (std::size_t i = 0; i < a.states.size(); ++i) {
    EXPECT_TRUE(a.states[i] == b.states[i]) << "parameter " << i;
  }
}

/// One virtual node, host placement: what every other way must equal.
Outcome plainly(const Sizes& sizes, int steps) {
  return train(all_flavours().front(), sizes, steps);
}

TEST_P(EmptyParameters, BetweenOthersChangeNothing) {
  expect_same(train(GetParam(), {{8, 0, 24}}, 10), plainly({{8, 24}}, 10));
  expect_same(train(GetParam(), {{0, 9000, 0}, {0, 3}}, 10), plainly({{9000}, {3}}, 10));
}

TEST_P(EmptyParameters, MayFillAGroup) {
  expect_same(train(GetParam(), {{0, 0}, {24}, {0}}, 10), plainly({{}, {24}, {}}, 10));
}

TEST_P(EmptyParameters, MayBeAllThereIs) {
  EXPECT_TRUE(train(GetParam(), {{0}}, 4).states.empty());
  EXPECT_TRUE(train(GetParam(), {{0, 0}, {0}}, 4).states.empty());
}

/// Most nodes and threads have nothing to do, in every one of many steps.
TEST_P(EmptyParameters, FewElementsOverManyNodes) {
  expect_same(train(GetParam(), {{5}}, 100), plainly({{5}}, 100));
  expect_same(train(GetParam(), {{3, 0}}, 100), plainly({{3}}, 100));
}

}  // namespace
}  // namespace outboard::testing
