// SPDX-License-Identifier: Apache-2.0
/// The training loop, and what it shows.
#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "../common/report.hpp"
#include "data.hpp"
#include "model.hpp"
#include "options.hpp"
#include "outboard/outboard.hpp"
#include "report.hpp"

namespace text {

/// Owns the device, the model on it and the engine. One thread.
class Trainer {
 public:
  /// Lays out the model and commits the engine. `corpus` must outlive the trainer.
  /// @throws outboard::Error{out_of_memory} if the device is too small, saying by how much.
  Trainer(const Options& options, const Corpus& corpus, std::ostream& out);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// What is held where, before training.
  void print_ledger();
  /// Trains until the last step, or the step during which `stop` became true; prints as it goes.
  void run(const std::atomic<bool>& stop);
  /// Held-out loss beside the order-1 model's, where the time went, device peak.
  void print_summary();
  /// Lets the model write.
  void print_sample();

 private:
  StepReport train_step(std::uint64_t step);
  /// Mean loss of the held-out positions. Right after step(): each layer waits for its own refresh.
  double held_out_loss();
  [[nodiscard]] outboard::AdamW settings(std::uint64_t step) const;

  const Options& options_;
  const Corpus& corpus_;
  std::ostream& out_;
  TrainSampler sampler_;
  std::vector<std::size_t> positions_;  // held out
  double order1_loss_;
  example::StepLog log_;

  // Destroyed from the last to the first: the engine before the memory it works on.
  outboard::sim::Gpu gpu_;
  Model model_;
  outboard::NativeStream stream_;
  outboard::Engine engine_;
  outboard::GroupId group_;

  std::vector<std::uint8_t> tokens_;
  double loss_sum_ = 0.0;    // written by the device
  std::uint64_t steps_ = 0;  // training steps and their times, without evaluation
  double train_ms_ = 0.0;
  double kernel_ms_ = 0.0;
};

}  // namespace text
