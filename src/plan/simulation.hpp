// SPDX-License-Identifier: Apache-2.0
/// The machinery behind simulate(): keeps its tables, so that one model can be simulated again and
/// again without allocating.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/pack_layout.hpp"
#include "plan/simulate.hpp"

namespace outboard::plan {

class Simulation {
 public:
  /// `model` and `rates` must outlive it.
  Simulation(const StepModel& model, const Rates& rates, StepSchedule schedule);

  /// @throws Error{invalid_argument} as simulate().
  const Prediction& run(std::span<const BucketPlace> places,
                        std::vector<TimelineEntry>* timeline = nullptr);

 private:
  struct Op {
    OpKind kind = OpKind::backward;
    std::uint32_t index = 0;  ///< as in TimelineEntry; of the way of a sum: into model_.gradients
    double duration_us = 0.0;
    std::uint64_t bytes = 0;
    double since_us = 0.0;  ///< when it was queued
  };
  /// One of the resources: runs one operation at a time, to its end.
  struct Unit {
    bool busy = false;
    double end_us = 0.0;
    double busy_us = 0.0;
    Op op;
  };
  /// First in, first out; keeps its memory.
  struct Fifo {
    std::vector<Op> items;
    std::size_t head = 0;
    double free_us = 0.0;  ///< what was taken last has ended then
    [[nodiscard]] bool empty() const { return head == items.size(); }
    /// Since when its first could run; infinity if there is none.
    [[nodiscard]] double waits_since_us() const;
    /// As new, with the room it has.
    void reset() { items.clear(), head = 0, free_us = 0.0; }
    void push(Op op, double now_us) { op.since_us = now_us, items.push_back(op); }
    Op pop();
  };
  struct BucketRun {
    std::uint32_t missing = 0;     ///< what the update still needs: gradients, open gate: scalars
    std::uint32_t ungiven = 0;     ///< gradients that backward has not completed
    std::uint32_t last_piece = 0;  ///< of backward: completed the last of them
    bool unjudged = false;         ///< open gate: its scalars are not on the host
    bool state_here = false;       ///< streamed: its state is on the device, ready for an update
    bool state_leaving = false;    ///< streamed: the copy back has not ended
    bool posted = false;           ///< its update is queued, or further on
    bool updated = false;
    bool refreshed = false;  ///< the forward may read its weights
    double refreshed_us = 0.0;
  };
  /// Accumulate::host: the gradients of a piece of backward.
  struct PieceRun {
    std::uint32_t untaken = 0;  ///< copies that the next micro-batch's piece waits for
    std::uint32_t unadded = 0;  ///< on their way to sums on the host
    bool complete = false;      ///< the last micro-batch's has been given
  };
  /// Streams of the engine's kernels.
  static constexpr std::size_t kNorms = 0, kUnpacks = 1, kUpdates = 2, kKernelQueues = 3;
  static constexpr std::size_t kCompute = 0, kDown = 1, kUp = 2, kFirstNode = 3;

  void check(std::span<const BucketPlace> places) const;
  void begin_run(std::span<const BucketPlace> places);
  void begin_step();
  void run_step();
  void advance_to_next_end();
  void start_idle_units();
  void start_compute();
  void start_trainers();
  void start_up();
  void start_down();
  void start_node(std::uint32_t node);
  void start(std::size_t unit, const Op& op);

  void finish(std::size_t unit);
  void finish_backward(std::uint32_t piece);
  void send_gradient(const StepModel::Gradient& gradient);
  void piece_known(std::uint32_t bucket);
  void norms_complete(std::uint32_t piece);
  void ask_for_scalars(std::uint32_t piece);
  void scalars_known(std::uint32_t piece);
  void finish_update(std::uint32_t bucket);
  void unpack(std::uint32_t bucket);
  void refresh(std::uint32_t bucket);

  // Accumulate::host, in simulation_sums.cpp:
  [[nodiscard]] bool sums() const { return model_.micro_batches > 0; }
  void begin_sums();
  /// Open gate: whether scalars must reach the host before the bucket's update.
  [[nodiscard]] bool judged_by_scalars(std::uint32_t bucket) const {
    return !sums() || places_[bucket].home != Home::host;
  }
  [[nodiscard]] bool last_micro_batch() const { return micro_batch_ + 1 == simulated_; }
  void gradients_to_sums(std::uint32_t piece);
  [[nodiscard]] double device_sum_us(const StepModel::Gradient& gradient, bool first,
                                     bool last) const;
  [[nodiscard]] double host_sum_us(const StepModel::Gradient& gradient) const;
  void sum_copied(const Op& op);
  void sum_added(const Op& op);
  struct MicroBatch {
    double kernels_us = 0.0, down_us = 0.0;
    double slowest_us = 0.0;  ///< of all resources
    std::uint64_t bytes_down = 0;
  };
  [[nodiscard]] MicroBatch micro_batch_between();
  void add_other_micro_batches();

  void try_gate();
  void open_gate();
  void post_if_ready(std::uint32_t bucket);
  [[nodiscard]] bool next_forward_ready();
  [[nodiscard]] double trainer_waits_since_us();
  void start_from(std::size_t unit, Fifo& fifo);
  [[nodiscard]] std::uint32_t next_upload() const;
  [[nodiscard]] bool rest_goes_first(std::uint32_t bucket) const;
  void start_upload(std::uint32_t bucket);
  [[nodiscard]] bool state_ready() const;
  [[nodiscard]] double& exposed_while_idle();
  void charge_exposed(double us);

  [[nodiscard]] Op copy_op(OpKind kind, std::uint32_t bucket, std::uint32_t copies,
                           std::uint64_t bytes) const;
  [[nodiscard]] Op state_op(OpKind kind, std::uint32_t bucket) const;
  [[nodiscard]] Op device_update(std::uint32_t bucket) const;

  const StepModel& model_;
  const Rates& rates_;
  StepSchedule schedule_;
  std::span<const BucketPlace> places_;
  std::vector<TimelineEntry>* timeline_ = nullptr;
  Prediction result_;

  double now_us_ = 0.0;
  double step_start_us_ = 0.0;
  std::vector<Unit> units_;
  std::vector<BucketRun> runs_;
  std::vector<std::vector<std::uint32_t>> ready_;  ///< per node, a heap: earliest bucket first
  std::array<Fifo, kKernelQueues> kernels_;        ///< of the engine
  double trainer_ended_us_ = 0.0;                  ///< the last of the trainer's kernels
  double weights_here_us_ = 0.0;  ///< what the next forward needs, as far as looked at
  Fifo scalars_queue_;  ///< to the host, on a stream of its own: they wait for no queued copy
  Fifo down_queue_;
  std::vector<std::uint32_t> hosted_;        ///< buckets on the host, in forward order
  std::vector<std::uint32_t> streamed_;      ///< buckets, in the order of their updates
  std::uint64_t scalars_bytes_ = 0;          ///< of one parameter, to the host
  std::size_t next_upload_ = 0;              ///< into hosted_
  std::vector<std::uint32_t> open_uploads_;  ///< open gate: buckets in the order of their updates
  std::size_t next_state_ = 0;               ///< into streamed_; runs on into the next step
  std::uint32_t free_buffers_ = kStreamBuffers;
  bool device_has_state_ = false;
  bool rest_sent_ = false;  ///< of the bucket at next_upload_, all but what is packed
  std::size_t free_unpack_buffers_ = core::kUnpackBuffers;
  // Accumulate::host:
  std::uint32_t simulated_ = 1;  ///< micro-batches
  std::uint32_t micro_batch_ = 0;
  bool pass_due_ = false;            ///< its forward is to start
  std::vector<PieceRun> pieces_;     ///< of backward
  Fifo sum_queue_;                   ///< copies that wait for the link and for a slot of the ring
  std::uint32_t ring_free_ = 0;      ///< slots
  std::vector<Fifo> additions_;      ///< per node
  std::uint64_t sums_left_ = 0;      ///< gradients that are still to be added up on the host
  std::vector<double> node_sum_us_;  ///< per node, of one micro-batch

  std::size_t next_backward_ = 0;
  std::size_t next_forward_ = 0;
  std::uint32_t next_need_ = 0;  ///< of the next piece of forward
  std::uint32_t blocked_on_ = 0;
  std::uint32_t norms_left_ = 0;
  std::size_t backward_left_ = 0;
  std::size_t forward_left_ = 0;
  std::uint64_t gradients_left_ = 0;  ///< on their way to the host
  std::size_t unrefreshed_ = 0;       ///< buckets
  std::size_t updates_left_ = 0;      ///< on the host
  std::size_t unknown_ = 0;           ///< open gate: buckets whose scalars are not on the host
  std::uint32_t unasked_ = 0;         ///< open gate: norms whose scalars nobody has asked for
  enum class Gate : std::uint8_t { closed, queued, known, open } gate_ = Gate::closed;
};

}  // namespace outboard::plan
