// SPDX-License-Identifier: Apache-2.0
/// The small network, trained by an engine.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "engine/small_network.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {

/// Adds the network to `group`, commits and trains. `gradients_of(result)`: what the engine is
/// given, a vector of floats for each parameter. @return the loss before each step.
template <class GradientsOf>
std::vector<double> train_network(ManualTrainer& trainer, GroupId group, int steps,
                                  GradientsOf gradients_of) {
  std::vector<ParameterId> ids;
  for (const Network::Values& values : Network::initial()) {
    ids.push_back(trainer.add("p" + std::to_string(ids.size()), values, group));
  }
  trainer.engine->commit();
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    std::vector<Network::Values> weights;
    for (const ParameterId id : ids) weights.push_back(trainer.weights(id));
    const Network::Result result = Network::run(weights);
    losses.push_back(result.loss);
    const std::vector<Network::Values> gradients = gradients_of(result);
    ManualTrainer::Gradients given;
    for (std::size_t i = 0; i < ids.size(); ++i) given.emplace_back(ids[i], gradients[i]);
    EXPECT_TRUE(trainer.step(given).applied());
  }
  return losses;
}

}  // namespace outboard::testing
