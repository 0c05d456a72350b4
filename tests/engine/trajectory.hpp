// SPDX-License-Identifier: Apache-2.0
/// What one training run looked like from outside, step by step, and how to compare two runs.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/tiny_trainer.hpp"

namespace outboard::testing {

/// Appends parameters w0, w1, ... of these sizes, their groups in turn.
inline void add_parameters(TinyOptions& options, std::span<const std::uint64_t> sizes) {
  for (const std::uint64_t elems : sizes) {
    TinyParameter parameter;
    parameter.name = "w" + std::to_string(options.parameters.size());
    parameter.elems = elems;
    parameter.group = static_cast<std::uint32_t>(options.parameters.size() % options.group_count());
    options.parameters.push_back(std::move(parameter));
  }
}

struct TrajectoryStep {
  double loss = 0.0;
  double grad_norm = 0.0;
  double loss_scale = 1.0;
  double next_loss_scale = 1.0;
  bool skipped = false;
  std::optional<std::uint64_t> digest;  ///< where the run read it
};
using Trajectory = std::vector<TrajectoryStep>;

/// Reading a digest drains the engine, so a run that reads all of them never overlaps a step with
/// the next one. Bit s of `digests` says whether it is read after step s; after the last it always
/// is.
struct RunOptions {
  std::uint64_t steps = 8;
  std::uint64_t digests = ~std::uint64_t{0};
};

/// One step; its loss is not known yet.
inline TrajectoryStep take_step(TinyTrainer& trainer, bool digest) {
  trainer.options().digest = digest;
  const TinyStep step = trainer.step();
  TrajectoryStep seen;
  seen.grad_norm = step.result.grad_norm;
  seen.loss_scale = step.result.loss_scale;
  seen.next_loss_scale = step.result.next_loss_scale;
  seen.skipped = step.result.skipped();
  if (digest) seen.digest = step.digest;
  return seen;
}

/// Continues a trainer that has been started.
inline Trajectory run_trajectory(TinyTrainer& trainer, const RunOptions& run) {
  Trajectory out;
  const std::uint64_t first = trainer.steps();
  for (std::uint64_t s = 0; s < run.steps; ++s) {
    const bool last = s + 1 == run.steps;
    out.push_back(take_step(trainer, last || (run.digests >> (s % 64) & 1) != 0));
  }
  for (std::uint64_t s = 0; s < run.steps; ++s) out[s].loss = trainer.loss(first + s);
  return out;
}

inline Trajectory run_trajectory(TinyOptions options, const RunOptions& run) {
  TinyTrainer trainer(std::move(options));
  trainer.start();
  return run_trajectory(trainer, run);
}

inline void append(Trajectory& out, const Trajectory& more) {
  out.insert(out.end(), more.begin(), more.end());
}

inline bool same_bits(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// "" if every number of the two runs has the same bits, else the first that differs. A digest is
/// compared where both runs read it.
inline std::string first_difference(const Trajectory& expected, const Trajectory& seen) {
  if (expected.size() != seen.size()) return "number of steps";
  for (std::size_t s = 0; s < seen.size(); ++s) {
    const TrajectoryStep& a = expected[s];
    const TrajectoryStep& b = seen[s];
    const std::string at = " of step " + std::to_string(s);
    const auto both = [](double x, double y) {
      return ": expected " + std::to_string(x) + ", got " + std::to_string(y);
    };
    if (a.skipped != b.skipped) return "skipping" + at;
    if (!same_bits(a.loss, b.loss)) return "loss" + at + both(a.loss, b.loss);
    if (!same_bits(a.grad_norm, b.grad_norm)) {
      return "gradient norm" + at + both(a.grad_norm, b.grad_norm);
    }
    if (!same_bits(a.loss_scale, b.loss_scale)) return "loss scale" + at;
    if (!same_bits(a.next_loss_scale, b.next_loss_scale)) return "next loss scale" + at;
    if (a.digest && b.digest && *a.digest != *b.digest) return "state digest" + at;
  }
  return "";
}

}  // namespace outboard::testing
