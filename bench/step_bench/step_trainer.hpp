// SPDX-License-Identifier: Apache-2.0
/// Trains a workload in one way on a software GPU of its own, and records what runs.
#pragma once

#include <cstdint>
#include <vector>

#include "outboard/outboard.hpp"
#include "step_bench/ways.hpp"
#include "step_bench/workload.hpp"

namespace outboard::step_bench {

/// Device addresses of a layer's tensors.
struct LayerMemory {
  void* weight = nullptr;
  const void* gradient = nullptr;
};

class StepTrainer {
 public:
  /// Commits and runs kWarmSteps. @throws what Engine::commit() does.
  StepTrainer(const Workload& workload, const Way& way, sim::Mode mode);
  ~StepTrainer();
  StepTrainer(const StepTrainer&) = delete;
  StepTrainer& operator=(const StepTrainer&) = delete;

  /// Forgets what was recorded before.
  void start_recording();
  /// A forward, then `steps` times a backward, those of the other micro-batches, step() and a
  /// forward; waits for all of it before and after. So each step is a period from the end of one
  /// first forward to the end of the next.
  void turn(std::uint32_t steps);
  /// Since start_recording(). @throws Error{out_of_memory} if spans found no room.
  [[nodiscard]] Timeline recording() const;
  [[nodiscard]] std::uint64_t state_digest() { return engine_->state_digest(); }
  [[nodiscard]] const std::vector<LayerMemory>& layers() const { return layers_; }

 private:
  void allocate();
  void make_engine(const Way& way, sim::Mode mode);
  void forward();
  void backward();
  void synchronize();

  Workload workload_;
  sim::Gpu gpu_;
  NativeStream stream_;
  std::vector<LayerMemory> layers_;
  std::unique_ptr<Engine> engine_;
  std::vector<ParameterId> parameters_;
  bool given_ = false;  ///< gradients have been given
};

}  // namespace outboard::step_bench
