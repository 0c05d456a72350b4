// SPDX-License-Identifier: Apache-2.0
/// Second stage: each parameter's rule on the bucket's node, in the order in which the next forward
/// uses the buckets. Nothing waits for a bucket that has not arrived; of those that have, the
/// earliest goes first.
///
/// A rule of two phases (LAMB) needs a norm over the whole parameter between them. Its buckets take
/// their first phase as they arrive, wherever they lie; the last one of a parameter to end it makes
/// the norm, and a bucket goes on to its second phase when it lacks no norm.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/gradient_out.hpp"
#include "pipeline/lamb_norms.hpp"
#include "pipeline/snapshot.hpp"
#include "pipeline/ticket.hpp"

namespace outboard::pipeline {

/// Fixes the hyper-parameters of the parameter's next update: `index` is its own, `coeff` what its
/// gradient is multiplied by. No earlier update of it may be running.
void take_settings(Parameter& parameter, std::uint32_t index, const optim::Group& group,
                   double coeff);
/// Counts that update, which is sure from now on.
void join_update(Parameter& parameter);

class UpdateListener {
 public:
  /// With the lock held, on an executor thread: the slot holds the refreshed weights.
  virtual void bucket_updated(Ticket ticket) noexcept = 0;

 protected:
  ~UpdateListener() = default;
};

class Update final : public ArrivalListener {
 public:
  Update(Flow& flow, UpdateListener& listener);
  /// Buckets have come or gone. Without an update that runs; allocates only for what has come.
  void fit();

  /// Opens the gate for a bucket some of whose segments are `in_update`. Its update before must
  /// have ended.
  void open(std::uint32_t bucket);
  /// Buckets that have arrived begin when `snapshot` lets them, which must outlive this.
  void guard_with(Snapshot& snapshot) noexcept { snapshot_ = &snapshot; }
  /// It lets this one, which it has held back.
  void begin(std::uint32_t bucket) noexcept;
  /// Whether its update has been opened and has not ended.
  [[nodiscard]] bool running(std::uint32_t bucket) const { return running_[bucket].open; }
  void segment_arrived(std::uint32_t segment) noexcept override;

 private:
  enum class Phase : std::uint8_t {
    measure,  ///< new moments and norms of two-phase parameters; the slot keeps its gradients
    apply,    ///< everything else: the slot's gradients become weights
  };
  struct Running {
    Ticket ticket;
    std::uint64_t part_elems = 0;
    std::uint32_t unmeasured = 0;  ///< its two-phase parameters that lack their norm
    bool open = false;
  };
  /// The elements of one segment that one thread works on, from the start of the bucket.
  struct Cut {
    const plan::Segment& segment;
    std::uint64_t from = 0, to = 0;
  };

  void arrived(std::uint32_t bucket) noexcept;
  void post(std::uint32_t bucket, Phase phase) noexcept;
  [[nodiscard]] std::uint64_t cost_elems(std::uint32_t bucket, Phase phase) const noexcept;
  void measured(std::uint32_t bucket) noexcept;
  void finish_norm(std::uint32_t parameter) noexcept;
  // Without the lock, on an executor thread:
  [[nodiscard]] simd::UpdateShard shard(std::uint32_t bucket, const Cut& cut) const noexcept;
  void measure_part(std::uint32_t bucket, std::uint32_t part) noexcept;
  void apply_part(std::uint32_t bucket, std::uint32_t part) noexcept;
  static void measure_body(void* self, std::uint64_t bucket, std::uint32_t part) noexcept;
  static void measure_done(void* self, std::uint64_t bucket) noexcept;
  static void apply_body(void* self, std::uint64_t bucket, std::uint32_t part) noexcept;
  static void apply_done(void* self, std::uint64_t bucket) noexcept;

  Flow& flow_;
  UpdateListener& listener_;
  Snapshot* snapshot_ = nullptr;
  LambNorms norms_;
  std::vector<Running> running_;  // by bucket
};

}  // namespace outboard::pipeline
