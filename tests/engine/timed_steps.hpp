// SPDX-License-Identifier: Apache-2.0
/// How long steps take on the virtual clock: from one end of forward to the next.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/tiny_trainer.hpp"

namespace outboard::testing {

/// When the first forward of each of `steps` steps ended, which must all be applied. `each` is
/// called after a step. Forward and backward run `passes` times.
template <class Each>
std::vector<sim::Duration> forward_ends(TinyTrainer& trainer, std::uint64_t steps, Each each) {
  sim::Gpu gpu = trainer.gpu();
  std::vector<sim::Duration> ends;
  for (std::uint64_t s = 0; s < steps; ++s) {
    trainer.forward();
    const auto mark = [&](sim::KernelView&) { ends.push_back(gpu.now()); };
    gpu.launch(trainer.reader(), sim::Duration(0), mark, "mark");
    trainer.backward();
    for (std::uint32_t m = 1; m < trainer.options().passes; ++m) {
      trainer.forward();
      trainer.backward();
    }
    EXPECT_TRUE(trainer.finish().result.applied());
    each();
  }
  gpu.synchronize(trainer.reader());  // its marks write here
  return ends;
}

inline std::vector<sim::Duration> forward_ends(TinyTrainer& trainer, std::uint64_t steps) {
  return forward_ends(trainer, steps, [] {});
}

/// Of the steps from `warm` on.
inline double mean_step_us(const std::vector<sim::Duration>& ends, std::size_t warm) {
  const sim::Duration took = ends.back() - ends.at(warm - 1);
  return static_cast<double>(took.count()) * 1e-3 / static_cast<double>(ends.size() - warm);
}

}  // namespace outboard::testing
