// SPDX-License-Identifier: Apache-2.0
/// The training loop, and what it shows.
#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../common/report.hpp"
#include "loss_watch.hpp"
#include "model.hpp"
#include "options.hpp"
#include "outboard/outboard.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "schedule.hpp"
#include "step_clock.hpp"
#include "tokens.hpp"

namespace gpt {

/// Owns the device, the model on it and the engine. One thread.
class Trainer {
 public:
  /// Lays out the model and commits the engine. `options` and `tokens` must outlive the trainer.
  /// @throws outboard::Error{out_of_memory} if the device is too small, saying by how much.
  Trainer(const Options& options, const Tokens& tokens, std::ostream& out);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// What is held where, before training.
  void print_ledger();
  /// Goes on from Options::resume if it is given; otherwise finds out whether what is to be saved
  /// has room. Before run(). @throws outboard::Error, std::runtime_error for a checkpoint of
  /// another run.
  void prepare_checkpoints();
  /// Trains until the last step, or the step during which `stop` became true; prints as it goes.
  /// @throws Diverged.
  void run(const std::atomic<bool>& stop);
  /// Use, peak and limit of the device, which holds nothing but this run.
  [[nodiscard]] outboard::sim::MemoryUse device_memory() const { return machine_->memory(); }
  /// Where the time went, device peak, digest.
  void print_summary();
  /// Lets the model write.
  void print_sample();

 private:
  [[nodiscard]] StepReport train_step(std::uint64_t step);
  void queue_micro_batches();
  /// Mean loss of the held-out rows. Right after step(): each layer waits for its own refresh.
  [[nodiscard]] double held_out_loss();
  void set_groups(double lr);
  [[nodiscard]] std::string data_order() const;
  void require_own(const outboard::LoadReport& report) const;
  void resume();
  [[nodiscard]] outboard::SaveOptions save_options() const;
  std::uint64_t save(std::uint64_t step);  ///< the state's digest
  void save_beside(std::uint64_t step);
  /// Tells of the save that runs beside, if one does: once it has ended, or waits until it has.
  void tell_of_save(bool wait);
  [[nodiscard]] std::vector<Token> prompt() const;
  [[nodiscard]] double virtual_ms() const;
  /// Takes a second or two, on the kernels' threads. Nothing in virtual time.
  [[nodiscard]] std::optional<ProductRate> measure_products() const;

  const Options& options_;
  const Tokens& tokens_;
  std::ostream& out_;
  Progress progress_;
  RowSampler sampler_;
  std::vector<Token> held_out_;  // rows
  double order2_loss_;
  LearningRate learning_rate_;
  LossWatch watch_;
  example::StepLog log_;

  // Destroyed from the last to the first: the engine before the memory it works on.
  std::shared_ptr<Machine> machine_;
  Model model_;
  outboard::NativeStream stream_;
  StepClock clock_;
  outboard::Engine engine_;
  Groups groups_{};
  std::optional<outboard::SaveTicket> saving_;
  std::uint64_t saving_step_ = 0;

  std::vector<Token> rows_;       // of all micro-batches of a step: a queued copy reads them
  std::vector<double> losses_;    // of each micro-batch, summed over its tokens; the device writes
  std::uint64_t first_step_ = 1;  // of this process
  std::uint64_t steps_ = 0;       // its training steps and their times, without evaluation
  double train_ms_ = 0.0;
  TimeSplit split_{};
  double update_busy_us_ = 0.0;
  std::optional<ProductRate> products_;  // after the last step
};

}  // namespace gpt
