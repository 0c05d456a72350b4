// SPDX-License-Identifier: Apache-2.0
/// The engine: FP32 optimizer state on the host, on the device or on both, weights and gradients
/// of f16, bf16 or f32 on the device.
///
/// One step of a trainer:
///     for each layer in forward order:  engine.wait(w, stream);  queue forward
///     for each layer in reverse:        queue backward;  engine.gradient_ready(w, grad, stream)
///     StepResult r = engine.step();
///
/// Calls may come from several threads, except add_group(), add_parameter(), commit(), set_group(),
/// set_accumulation(), step(), discard(), synchronize(), state_digest(), read_state(),
/// set_placement(), weights_changed(), rebind(), write_state(), set_max_grad_norm(),
/// set_gradient_divisor(), save(), save_async(), load() and check_save(), which must not run at the
/// same time as any other call of the same engine. A failure that may have left the state half new
/// poisons the engine: every later call that would use the device throws Error{poisoned} with the
/// first cause; only reports, load() and destruction are of use then. Any call that uses the device
/// may throw Error{device_failure}.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "outboard/checkpoint.hpp"
#include "outboard/config.hpp"
#include "outboard/device.hpp"
#include "outboard/export.hpp"
#include "outboard/stats.hpp"
#include "outboard/types.hpp"

namespace outboard {

/// Describes one parameter. `data` is borrowed device memory of `elems` elements of `dtype`, one
/// after the other without gaps, written by the engine from commit() until destruction. The engine
/// knows no shapes and no strides: a tensor of any shape is its elements in memory order, and so is
/// its gradient; of a strided view the trainer gives the whole tensor, or a dense copy.
struct ParameterSpec {
  std::string name{};  ///< unique within the engine; shown in every message
  DType dtype = DType::f16;
  std::uint64_t elems = 0;  ///< 0 is legal
  /// Device address of the weight, aligned to its element; null only if elems is 0.
  void* data = nullptr;
  GroupId group{};
  /// Initial FP32 master weights, `elems` of them, read during commit() and not kept. Empty: the
  /// masters start as the device's weights.
  std::span<const float> master{};
};

class OUTBOARD_API Engine {
 public:
  /// @throws Error{invalid_config} naming the field.
  explicit Engine(Device device, Config config = {});
  /// Waits for all work in flight, then releases everything. Never throws.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // --- set-up: before commit(), and again between steps ----------------------------------------
  //
  // What is added after a commit() takes part once the next commit() has taken it in: parameters
  // that are thawed, or new. After a commit() all three calls are for between steps.
  // @throws Error{protocol_error} naming a parameter whose gradient is pending.

  /// A group of any rule, as in add_group(Lion{.lr = 1e-4}); braces without a name are AdamW.
  /// @throws Error{invalid_config} naming the hyper-parameter.
  GroupId add_group(const AdamW& settings, const GroupOptions& options = {}) {
    return add_rule(settings, options);
  }
  template <class AnyRule>
  requires std::constructible_from<Rule, const AnyRule&> GroupId
  add_group(const AnyRule& settings, const GroupOptions& options = {}) {
    return add_rule(Rule(settings), options);
  }
  /// Registration order is the order of first use in the forward pass: updates and uploads follow
  /// it, and norms are added up in it. A second name for the same `data`, `elems` and `dtype` (tied
  /// weights) returns the first one's id; its gradient is then given once, summed. A parameter that
  /// is frozen costs nothing until it is added; one that gets no gradient keeps its state.
  /// @throws Error{invalid_argument} naming the parameter and the field.
  ParameterId add_parameter(const ParameterSpec& spec);
  /// Allocates, binds and pins all memory, reads or writes the initial weights. Blocks. The weights
  /// must be complete on the device: commit() is ordered behind no stream of the caller.
  ///
  /// Called again, it takes in what has been added since, with memory and buckets of its own, and
  /// waits for the updates and uploads of the last step; with nothing new it does nothing. State
  /// and staging that are there stay where they are. The trajectory is that of an engine which had
  /// the parameters from the start and gave them no gradient until now. Config::pinned_slots,
  /// device_budget_bytes and device_fraction are of all commits together; with
  /// Placement::automatic new state begins on the host and all of it is planned again.
  /// @throws Error{out_of_memory} saying how much is missing, Error{invalid_argument} for a NaN or
  /// Inf among the weights, Error{invalid_config} for a Config::device_fraction that whole buckets
  /// cannot meet or for Lamb with Placement::device_streamed, Error{device_failure}. Nothing is
  /// left allocated then, and commit() may be called again; a later one names the parameters that
  /// stay registered without being committed, and unless the device is lost the engine goes on as
  /// it was. Other calls refuse them with Error{protocol_error}.
  void commit();

  // --- each step -----------------------------------------------------------------------------

  /// Replaces a group's hyper-parameters from the next step() on; its rule stays what it is. Does
  /// not wait. The first change of more than `lr` after commit() is logged, once for each group.
  /// Schedule::open: not after the first gradient of a step, which fixes them.
  /// @throws Error{invalid_config} naming the hyper-parameter or the two rules,
  /// Error{invalid_argument} for an id, Error{protocol_error} where Schedule::open has begun a
  /// step.
  void set_group(GroupId group, const AdamW& settings) { set_rule(group, settings); }
  template <class AnyRule>
  requires std::constructible_from<Rule, const AnyRule&>
  void set_group(GroupId group, const AnyRule& settings) { set_rule(group, Rule(settings)); }
  /// Makes `stream` wait for the refresh of `parameter` by the last step() called, if there is one.
  /// Blocks the caller only where the device has no stream memory operations, or through a bounce
  /// ring, and then only until the copy is queued. Schedule::blocking: nothing is left to wait for,
  /// and no gradient_ready() asks whether wait() was called. Schedule::open: blocks the caller
  /// until the update has ended and the copy is queued.
  /// @throws Error{invalid_argument} for an unknown id or stream; Schedule::open:
  /// Error{protocol_error} for a parameter that has its gradient of this step, before step().
  void wait(ParameterId parameter, NativeStream stream);
  /// The gradient (`elems` values of the parameter's dtype, times loss_scale()) is complete at this
  /// point of `stream`.
  /// Returns at once. The buffer must stay untouched until wait_gradient_taken().
  /// Accumulate::host: called for each micro-batch; adds in FP32 in the order of the calls, and
  /// blocks while the copy of the micro-batch before still waits for a staging buffer.
  /// Schedule::open: a promise too that nothing which reads the weight is queued on any stream from
  /// here to the next wait() for it; with Accumulate::host the last micro-batch's call is. The
  /// parameter may be updated and refreshed from now on, behind all that is queued by now on every
  /// stream seen in wait() or gradient_ready(). The step's first call fixes the hyper-parameters.
  /// @throws Error{protocol_error} for a second gradient in a step (Accumulate::trainer), a refresh
  /// never waited for, or more micro-batches than Schedule::open was told of.
  void gradient_ready(ParameterId parameter, const void* gradient, NativeStream stream);
  /// Work queued on `stream` from now on may overwrite the gradient given last. Blocks the caller
  /// only while a full bounce ring has not queued its copy. For a device-resident parameter
  /// under Accumulate::trainer the gradient is read by the update itself, so the call is legal
  /// after step() only; with Placement::automatic that holds for every parameter.
  /// @throws Error{protocol_error} if no gradient was given, or as said for a resident one.
  void wait_gradient_taken(ParameterId parameter, NativeStream stream);
  /// Waits for the updates of the step before and for the gradients' norm, decides, and starts
  /// updates and uploads. Uploads are ordered behind all work already queued on every stream seen
  /// in wait() or gradient_ready() since the last applied step(). Returns before the update is done
  /// (Schedule::exact), or when all refreshed weights are on the device (blocking, serial).
  /// Schedule::open: waits until every gradient's norm is known, updates buckets that lack a
  /// gradient, and waits for no other update; StepOutcome::partial if a parameter was left out.
  /// @throws Error{numerics} after LossScaling::give_up_after overflows in a row; a step of
  /// Schedule::open that leaves something out counts as one.
  StepResult step();
  /// Drops the gradients given since the last step(). State and weights are unchanged. With a
  /// bounce ring it waits for the updates of the last step.
  /// @throws Error{protocol_error} with gradients pending under Schedule::open, which may have
  /// begun their updates. So do set_group() and everything that is for between steps.
  void discard();

  /// Micro-batches of the coming steps: what the sum of their gradients is divided by
  /// (Config::accumulation at first), at least 1. Does not wait.
  /// @throws Error{protocol_error} with gradients pending.
  void set_accumulation(std::uint32_t micro_batches);

  /// The limit of the gradients' norm in the coming steps (Config::max_grad_norm at first); 0 or
  /// infinity: none. Does not wait. @throws Error{invalid_config} below 0, for a NaN, or under
  /// Schedule::open.
  void set_max_grad_norm(double max_grad_norm);
  /// What the gradients of the coming steps were multiplied by beside loss_scale(), by the trainer
  /// itself: any number from 2^-100 to 2^100, 1 at first. They are divided by it in the update, at
  /// no cost, and the norm is that of the gradients without it. To be called before step(), also
  /// after the gradients were given: a trainer that clips by itself divides it by its factor. Does
  /// not wait. @throws Error{invalid_argument}, Error{protocol_error} with gradients pending under
  /// Schedule::open.
  void set_gradient_divisor(double divisor);

  /// The factor the next backward must multiply its loss by. Changes inside step() and load() only.
  [[nodiscard]] double loss_scale() const;

  // --- between steps -------------------------------------------------------------------------

  /// The trainer itself wrote the weight (queued on `stream`): the master is read from it again;
  /// the rest of the state, an average of the weights too, and the step count stay. Blocks.
  /// @throws Error{protocol_error} while a gradient of it is pending or its last refresh was not
  /// waited for; Error{invalid_argument} for a NaN or Inf, and the master keeps its value.
  void weights_changed(ParameterId parameter, NativeStream stream);
  /// The trainer has moved the weight: it lies at `data` from now on, with the value it had, and
  /// nobody uses the old memory any more. Copies nothing. Blocks. A second name of a tied weight
  /// moves with it.
  /// @throws Error{protocol_error} as weights_changed(); Error{invalid_argument} for an address
  /// that add_parameter() would refuse, and the weight stays where it was.
  void rebind(ParameterId parameter, void* data);
  /// One stream of a parameter's state, by its name in state_streams().
  struct StateSource {
    std::string_view stream;
    std::span<const float> values;  ///< `elems` of them, borrowed for the call
  };
  /// Replaces streams of one parameter's state, and its step count; what is not given stays. The
  /// device's weight becomes the rounded master. For state of other programs: a checkpoint of this
  /// library is load()ed. Blocks.
  /// @throws Error{protocol_error} with a gradient pending; Error{invalid_argument} for a NaN, an
  /// Inf, another size, or a stream that the parameter has not; nothing has changed then.
  void write_state(ParameterId parameter, std::span<const StateSource> sources,
                   std::optional<std::uint64_t> step_count = {});
  /// Moves state between host and device; no bit of it changes. Blocks: all that is resident goes
  /// to the host, then what is to be resident to the device, so the device never holds more than
  /// the larger of both. Needs memory on the host for all of the state: an engine made with
  /// Placement::host or automatic, or with Config::keep_host_room. A change to Placement::automatic
  /// moves all to the host and chooses from there.
  /// @throws Error{protocol_error} while a gradient is pending; Error{invalid_config} for settings
  /// as the constructor and commit() do, or without that memory; Error{out_of_memory} if the device
  /// has not enough, or Config::device_budget_bytes does not allow it.
  /// Nothing has moved then, unless the device's free memory is in too small pieces: all of the
  /// state is on the host in that case, and the text says so.
  void set_placement(const PlacementChange& change);
  /// Blocks until every update and upload has finished.
  void synchronize();

  /// Digest of all state: masters, the rules' streams, averages, step counts, loss scale. Equal
  /// digests mean equal bits. Reads the whole state once; implies synchronize().
  [[nodiscard]] std::uint64_t state_digest();
  /// Copies of one parameter's state, by stream; each span holds `elems` values or is empty. Which
  /// streams there are depends on the parameter's group: see state_streams().
  struct StateView {
    std::span<float> master{}, exp_avg{}, exp_avg_sq{}, momentum_buffer{}, sum{}, ema{};
  };
  /// Implies synchronize(). @throws Error{invalid_argument} for a span of another size, or for a
  /// stream that the parameter has not, naming those it has.
  void read_state(ParameterId parameter, const StateView& out);
  /// The same for one stream by its name in state_streams(); `out` holds `elems` values.
  void read_state(ParameterId parameter, std::string_view stream, std::span<float> out);
  /// Names of the parameter's streams: "master", then the rule's, then "ema" if there is one.
  [[nodiscard]] std::vector<std::string_view> state_streams(ParameterId parameter) const;
  [[nodiscard]] std::uint64_t step_count(ParameterId parameter) const;  ///< updates applied to it

  // --- checkpoints: between steps ----------------------------------------------------------------

  /// Saves all state into `folder`, as one more checkpoint in it: masters, the rules' streams,
  /// averages, step counts, hyper-parameters, loss scale and counters, of committed parameters
  /// only. `folder` is made if its parent is there. Blocks; implies synchronize(). The state is
  /// written from where it lies, so no second copy of it is made.
  ///
  /// A crash, a full disk or a loss of power at any moment leaves the checkpoints before, or those
  /// and the new one: complete, synced and found by load(). What a killed save() left is removed by
  /// the next one. After a failure training goes on and load() finds what it found before; rests of
  /// the attempt go with the next save() where the file system does not let them go now. Only if
  /// `folder` cannot be synced, and the new name not be taken back either, is the new checkpoint
  /// there, complete, and the text says so.
  /// @throws Error{protocol_error} with a gradient pending; Error{no_space} saying how much is
  /// needed and free, before anything is written; Error{io_failure} naming the file;
  /// Error{invalid_argument} for a name that is not UTF-8; Error{invalid_config} for an option.
  SaveReport save(const std::string& folder, const SaveOptions& options = {});
  /// The same while training goes on: the checkpoint is the state at this call, bit for bit, and
  /// one thread of the engine's own writes it. Waits for no update of buckets whose state is the
  /// host's; what the device updates it waits for, as synchronize() does. Room and folder are
  /// checked before it returns.
  ///
  /// State that an update is about to change before it was written is copied first, into
  /// Config::snapshot_bytes of host memory, by the cores that update it. Where these are full the
  /// update waits until the save has been past it or has made room (StepStats::save_wait_us);
  /// what updates on the device would change is waited for by step(), with Schedule::open by the
  /// step's first gradient_ready(). The trajectory stays what it is.
  ///
  /// One runs at a time: another save_async() or save() waits for it first, and so do commit() with
  /// something new, load(), set_placement(), weights_changed(), write_state() and the engine's
  /// destructor, which lets it finish: the time that the disk takes is its bound.
  /// Placement::automatic moves nothing meanwhile. A failure on the way leaves the checkpoints as
  /// they were and training goes on; SaveTicket::wait() throws it, or, if the ticket is gone, the
  /// next step(), once, before it does anything: call it again. The log has it in any case.
  /// @throws as save(), before anything is written; Error{out_of_memory} for the snapshot's memory.
  [[nodiscard]] SaveTicket save_async(const std::string& folder, const SaveOptions& options = {});
  /// Loads the newest checkpoint in `folder`, or the one that `folder` is. Parameters are found by
  /// name, whatever their order; threads, nodes, bucket sizes, placement and devices need not be
  /// those that saved. Streams from the files to where the state lies, then makes the device's
  /// weights: where rounding is stochastic they are those of the engine that saved if parameters
  /// are registered in the same order. Groups get the hyper-parameters that their parameters had,
  /// the loss scale and counters theirs. Config and set_accumulation() stay; what of them decides
  /// on the trajectory and is not as it was is a difference (LoadOptions::strict): accumulation,
  /// who adds up, max_grad_norm and the loss scale's growth_interval, min_scale and max_scale.
  /// Uploads are ordered behind the streams as those of a step() are; blocks until they have
  /// passed.
  ///
  /// A poisoned engine is made anew, as by commit(), and is sound when load() returns; it must get
  /// the state of every parameter. A failure before the first byte of state is read leaves the
  /// engine as it was, and a later one poisons it: load() again.
  /// @throws Error{bad_checkpoint} naming a damaged file, or listing what does not fit (see
  /// LoadOptions::strict); Error{unsupported} for a later format; Error{io_failure};
  /// Error{protocol_error} with a gradient pending.
  LoadReport load(const std::string& folder, const LoadOptions& options = {});
  /// Bytes of the files that save() would write.
  [[nodiscard]] std::uint64_t checkpoint_bytes(const SaveOptions& options = {}) const;
  /// What save() checks before it writes, for the start of a run. Writes nothing, waits for
  /// nothing.
  /// @throws Error{no_space}, Error{io_failure}, Error{invalid_config}.
  void check_save(const std::string& folder, const SaveOptions& options = {}) const;

  [[nodiscard]] StepStats stats() const;
  [[nodiscard]] MemoryLedger ledger() const;  ///< after commit()
  /// One line per choice: threads and why, nodes, SIMD target, each group's algorithm, decay and
  /// hyper-parameters as they are now, pinning, placement. commit() logs these lines.
  [[nodiscard]] std::string describe() const;

 private:
  GroupId add_rule(const Rule& rule, const GroupOptions& options);
  void set_rule(GroupId group, const Rule& rule);

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard
