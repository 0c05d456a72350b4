// SPDX-License-Identifier: Apache-2.0
/// What all stages of one engine share: the tables of parameters, segments and buckets, the
/// engine's streams, and the one mutex that guards them.
///
/// Every function of this room is called with `Flow::mutex` held unless it says otherwise. Kernels
/// run without it: what they read is fixed before their task is posted.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "device/backend.hpp"
#include "exec/executor.hpp"
#include "memory/staging_pool.hpp"
#include "memory/state_store.hpp"
#include "optim/format.hpp"
#include "optim/group.hpp"
#include "optim/state_layout.hpp"
#include "outboard/config.hpp"
#include "outboard/stats.hpp"
#include "pipeline/first_error.hpp"
#include "plan/model_layout.hpp"
#include "plan/plan.hpp"
#include "simd/update.hpp"

namespace outboard::pipeline {

/// Threads' parts of a bucket start on a line of the slot, so that no two write one.
inline constexpr std::uint64_t kPartAlignElems = 64;

/// Memory traffic of one element's update. A rule of one phase has `apply` only.
struct UpdateBytes {
  std::uint64_t measure = 0, apply = 0;
};

/// How far a parameter is in a step with an open gate.
enum class OpenState : std::uint8_t {
  waiting,   ///< no complete gradient in this step; the only state under another schedule
  given,     ///< complete; nobody has asked for its scalars
  asked,     ///< its scalars are on their way
  updated,   ///< finite: it takes part
  left_out,  ///< not finite: this step does not touch it
};

struct Parameter {
  std::string name;
  void* weight = nullptr;    ///< device address
  DType dtype = DType::f16;  ///< of weight and gradient
  std::uint64_t elems = 0;
  std::uint32_t group = 0;
  std::uint32_t generation = 0;  ///< index into Flow::generations
  std::size_t rule_streams = 0;  ///< of its own rule; its generation's streams from 1 on
  std::size_t ema_stream = 0;    ///< has_ema: the stream that its average is
  bool has_ema = false;
  bool two_phase = false;      ///< its rule needs a norm over the whole parameter (LAMB)
  float initial_state = 0.0F;  ///< of the rule's first stream
  UpdateBytes update_bytes;
  plan::SegmentRange segments;
  std::uint32_t resident_segments = 0;  ///< in buckets whose state is on the device
  std::uint32_t device_segments = 0;    ///< in buckets that the device updates: streamed ones too
  std::uint64_t step_count = 0;

  const void* gradient = nullptr;   ///< given last; null: never
  bool has_gradient = false;        ///< given since the last step()
  std::uint32_t micro_batches = 0;  ///< gradients given since the last step()
  bool packed = false;              ///< the gradient given last left packed with others
  bool refresh_unwaited = false;    ///< a step() refreshes it and no wait() has followed
  bool ever_refreshed = false;
  std::uint32_t unqueued_copies = 0;  ///< segments that still wait for the bounce ring
  std::uint32_t unlanded_copies = 0;  ///< those, and segments on their way
  OpenState open = OpenState::waiting;
  device::Event ready;          ///< its gradient is complete
  device::Event reduced;        ///< the norm kernel has read the gradient
  device::Event scalars_known;  ///< open gate only: its scalars are on the host
  // Of the update started last:
  simd::RuleScalars scalars;
  simd::UpdateOptions update_options;
  double lr = 0.0;                       ///< two_phase: what the trust ratio is multiplied by
  std::uint32_t buckets_unmeasured = 0;  ///< two_phase: buckets whose first phase has not ended
};

struct SegmentRun {
  device::Event arrived;  ///< last copy to the host
  // Copies of one segment land in order, and the next step's may be queued before this step's has
  // landed: an update waits for a number, not for "none in flight".
  std::uint64_t copies_queued = 0;  ///< gradients sent on their way, dropped ones too
  std::uint64_t copies_landed = 0;
  std::uint64_t needed_landings = 0;  ///< copies_queued when the running update was opened
  bool in_ring = false;               ///< a buffer of the ring holds it: its next gradient waits
  bool in_update = false;             ///< takes part in its bucket's update started last
};

class BounceRing;
class HostSums;
class Packing;
class Preparation;

struct BucketRun {
  std::uint32_t generation = 0;  ///< index into Flow::generations
  plan::Home home = plan::Home::host;
  memory::SlotView slot;       ///< empty: the host has no room for it
  BounceRing* ring = nullptr;  ///< of its generation; null: all of that one's slots are direct
  Packing* packing = nullptr;  ///< of its generation; null: none of its buckets pack
  device::Event refreshed;     ///< last upload (or update on the device); if it packs, the last
                               ///< kernel that spread its weights
  device::Flag flag;           ///< uploads queued ahead wait for it
  bool updating = false;       ///< from the opening of the gate until its upload is queued
  std::uint32_t missing = 0;   ///< segments of the running update that have not arrived
  // Open gate only:
  std::uint32_t ungiven = 0;     ///< its parameters without a complete gradient in this step
  bool opened = false;           ///< in this step
  device::Event readers_passed;  ///< nobody reads its weights until their refresh
};

struct FlowOptions {
  Schedule schedule = Schedule::exact;
  bool check_waits = false;
  std::uint32_t rest_permille = 0;  ///< after each update, of its time
  bool uploads_ahead = false;       ///< queue uploads at the gate, behind flags
  std::uint32_t micro_batches = 0;  ///< Accumulate::host: most of a step; 0: the trainer adds up
};

/// What one commit() has brought: buckets with memory of their own, which stays where it is until
/// the engine's end. Empty where its buckets have no room on the host.
struct Generation {
  std::uint32_t first_parameter = 0, end_parameter = 0;
  std::uint32_t first_segment = 0;
  std::uint32_t first_bucket = 0, end_bucket = 0;
  std::vector<std::uint64_t> node_elems;  ///< padded, on each node
  optim::StateLayout streams;             ///< of its parameters' groups
  memory::StateStore state;
  memory::StateStore sums;  ///< Accumulate::host
  memory::StagingPool staging;
};

struct Flow {
  Flow(device::Backend& device, exec::Executor& host, FlowOptions flow_options)
      : backend(device), executor(host), options(flow_options) {}

  device::Backend& backend;
  exec::Executor& executor;
  FlowOptions options;
  plan::ModelLayout layout;
  std::vector<Generation> generations;  ///< in the order of their commit()
  HostSums* sums = nullptr;             ///< Accumulate::host with room on the host, else null
  std::vector<BounceRing*> rings;       ///< some serve several generations
  std::vector<Packing*> packings;       ///< of generations that pack
  Preparation* preparation = nullptr;   ///< of host memory, by commit()

  std::deque<Parameter> parameters;  ///< results borrow their names: they never move
  std::vector<SegmentRun> segments;
  std::vector<BucketRun> buckets;
  std::unique_ptr<std::atomic<std::uint64_t>[]> weight_overflows;  ///< per parameter, total
  std::uint32_t resident_count = 0;                                ///< buckets
  std::uint32_t streamed_count = 0;                                ///< buckets
  /// Accumulate::host: what a node has added up.
  struct NodeSums {
    std::uint64_t elems = 0;
    std::int64_t busy_ns = 0;
    std::int64_t seen_ns = 0;  ///< of the node's own time, when its last task ended
  };
  std::vector<NodeSums> node_sums;  ///< empty: nobody wants to know

  NativeStream down, up;  ///< gradients to the host, weights to the device
  NativeStream unpack;    ///< spreads packed weights
  /// Norm kernels, and unless the gate is open updates on the device. Waits for packed gradients on
  /// their way down, and so for no more of the host's work than the trainer's own streams did.
  NativeStream norm;
  // Open gate only:
  NativeStream past_readers;    ///< behind all reads queued before a gradient was given
  NativeStream scalars;         ///< to the host: beside `norm`, whose kernels do not wait for it
  NativeStream device_updates;  ///< in place of `norm`, which must not wait for readers

  std::mutex mutex;
  FirstError error;
  StepStats stats;
  std::uint32_t epoch = 0;              ///< applied steps, the value that flags are raised to
  std::uint64_t updates_running = 0;    ///< buckets whose update has not ended
  std::uint64_t uploads_unqueued = 0;   ///< buckets of the running update without queued upload
  std::uint64_t gradients_landing = 0;  ///< segments on their way through the ring
  std::uint64_t callbacks_pending = 0;
  std::uint64_t tasks_pending = 0;

  /// Moves every bucket's home; no state is copied.
  void set_homes(const std::vector<plan::Home>& homes) {
    set_homes_by([&](std::size_t bucket) { return homes[bucket]; });
  }
  /// All of them to one. Allocates nothing.
  void set_homes(plan::Home home) noexcept {
    set_homes_by([home](std::size_t) { return home; });
  }
  template <class HomeOf>
  void set_homes_by(HomeOf home_of) {
    resident_count = streamed_count = 0;
    for (Parameter& parameter : parameters) {
      parameter.resident_segments = parameter.device_segments = 0;
    }
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const plan::Home home = home_of(i);
      buckets[i].home = home;
      const bool resident = home == plan::Home::device_resident;
      const bool streamed = home == plan::Home::device_streamed;
      resident_count += resident ? 1 : 0;
      streamed_count += streamed ? 1 : 0;
      const plan::Bucket& shape = layout.buckets[i];
      for (std::uint32_t k = 0; k < shape.segments; ++k) {
        Parameter& parameter = parameters[layout.segments[shape.first_segment + k].parameter];
        parameter.resident_segments += resident ? 1 : 0;
        parameter.device_segments += resident || streamed ? 1 : 0;
      }
    }
  }
  [[nodiscard]] std::vector<plan::Home> homes() const {
    std::vector<plan::Home> homes;
    for (const BucketRun& bucket : buckets) homes.push_back(bucket.home);
    return homes;
  }
  /// Whether the state is on the device, between steps too.
  [[nodiscard]] bool is_resident(std::uint32_t bucket) const {
    return buckets[bucket].home == plan::Home::device_resident;
  }
  /// Whether the device updates it and reads gradients and weights where they are.
  [[nodiscard]] bool updated_on_device(std::uint32_t bucket) const {
    return buckets[bucket].home != plan::Home::host;
  }
  [[nodiscard]] std::uint32_t device_count() const noexcept {
    return resident_count + streamed_count;
  }
  [[nodiscard]] NativeStream device_update_stream() const noexcept {
    return open_gate() ? device_updates : norm;
  }
  /// Accumulate::host: whether a parameter's sum is on the device. Its buckets have one home.
  [[nodiscard]] bool has_device_sum(const Parameter& parameter) const {
    return options.micro_batches > 0 && parameter.device_segments > 0;
  }
  [[nodiscard]] bool has_host_sum(const Parameter& parameter) const {
    return options.micro_batches > 0 && parameter.device_segments == 0;
  }
  /// Accumulate::trainer: whether an update reads some of the gradient where it is.
  [[nodiscard]] bool read_in_place(const Parameter& parameter) const {
    return options.micro_batches == 0 && parameter.device_segments > 0;
  }
  /// Whether some of the bucket's segments are `in_update`.
  [[nodiscard]] bool takes_part(std::uint32_t bucket) const {
    const plan::Bucket& shape = layout.buckets[bucket];
    const auto runs = std::span(segments).subspan(shape.first_segment, shape.segments);
    return std::ranges::any_of(runs, &SegmentRun::in_update);
  }
  /// Of all parameters' GradientScalars, which lie in a row.
  [[nodiscard]] std::size_t gradient_scalar_bytes() const noexcept {
    return parameters.size() * sizeof(device::GradientScalars);
  }
  /// Padded elements, on the device and in all.
  struct Share {
    std::uint64_t resident_elems = 0, elems = 0;
    [[nodiscard]] double fraction() const {
      return elems == 0 ? 0.0 : static_cast<double>(resident_elems) / static_cast<double>(elems);
    }
  };
  [[nodiscard]] Share share() const {
    Share share;
    for (std::uint32_t i = 0; i < buckets.size(); ++i) {
      share.elems += layout.buckets[i].padded_elems;
      if (is_resident(i)) share.resident_elems += layout.buckets[i].padded_elems;
    }
    return share;
  }
  [[nodiscard]] const Generation& generation(std::uint32_t bucket) const {
    return generations[buckets[bucket].generation];
  }
  /// The bucket's right to its state.
  [[nodiscard]] memory::StateLease lease(std::uint32_t bucket) const {
    const plan::Bucket& shape = layout.buckets[bucket];
    return generation(bucket).state.lease({shape.node, shape.node_offset, shape.padded_elems});
  }
  /// Bytes of one element's state, in the generation that has the fewest and the most of them.
  struct StateBytes {
    std::uint64_t fewest = UINT64_MAX, most = 0;
  };
  [[nodiscard]] StateBytes state_bytes() const {
    StateBytes bytes;
    for (const Generation& generation : generations) {
      bytes.fewest = std::min<std::uint64_t>(bytes.fewest, generation.streams.elem_bytes());
      bytes.most = std::max<std::uint64_t>(bytes.most, generation.streams.elem_bytes());
    }
    return bytes;
  }
  /// Bytes of one element of the segment's weight and gradient.
  [[nodiscard]] std::size_t elem_bytes(const plan::Segment& segment) const {
    return dtype_bytes(parameters[segment.parameter].dtype);
  }
  /// The packed part of a bucket's slot.
  [[nodiscard]] std::span<std::byte> packed_bytes(std::uint32_t bucket) const {
    return buckets[bucket].slot.bytes.first(layout.buckets[bucket].packed_bytes());
  }
  /// A segment's part of its slot.
  [[nodiscard]] std::span<std::byte> slot_bytes(const plan::Segment& segment) const {
    const std::size_t size = elem_bytes(segment);
    return buckets[segment.bucket].slot.bytes.subspan(segment.offset * size, segment.elems * size);
  }
  [[nodiscard]] void* weight_address(const plan::Segment& segment) const {
    return static_cast<std::byte*>(parameters[segment.parameter].weight) +
           segment.first_element * elem_bytes(segment);
  }
  [[nodiscard]] bool open_gate() const noexcept { return options.schedule == Schedule::open; }
  /// What `stream` holds from now on writes this bucket's weights.
  void order_behind_readers(std::uint32_t bucket, NativeStream stream) {
    if (open_gate()) backend.wait_event(stream, buckets[bucket].readers_passed);
  }
  [[nodiscard]] const void* gradient_address(const plan::Segment& segment) const {
    return static_cast<const std::byte*>(parameters[segment.parameter].gradient) +
           segment.first_element * elem_bytes(segment);
  }

  /// Posts and counts; `task.done` must call finish_task().
  void post(const exec::Task& task) {
    ++tasks_pending;
    executor.post(task);
  }
  /// In a task's `done`, before finish_task(). `added_elems`: 0 if it was no addition.
  void count_sums(std::uint32_t node, std::uint64_t added_elems) noexcept {
    if (node_sums.empty()) return;
    NodeSums& added = node_sums[node];
    const std::int64_t now = executor.busy_ns(node);
    if (added_elems > 0) added.busy_ns += now - added.seen_ns;
    added.elems += added_elems;
    added.seen_ns = now;
  }
  void finish_task() noexcept {
    --tasks_pending;
    backend.waiter().wake();
  }
  /// Asks for a callback and counts it; the callback must call finish_callback().
  void notify(device::Event event, core::Callback callback) {
    backend.notify(event, callback);
    ++callbacks_pending;
  }
  void finish_callback() noexcept {
    --callbacks_pending;
    backend.waiter().wake();
  }

  /// For background work: keeps a failure for the next caller. `work` may throw anything.
  template <class Work>
  void capture_failure(Work&& work) noexcept {
    try {
      work();
    } catch (const Error& failure) {
      error.capture(failure.code(), failure.what());
    } catch (const std::exception& failure) {
      error.capture(ErrorCode::device_failure, failure.what());
    }
    backend.waiter().wake();
  }
  /// True once nothing that a caller waits for will come any more.
  [[nodiscard]] bool broken() const noexcept { return error.any() || backend.lost(); }
  void throw_if_broken() {
    if (!error.any() && backend.lost()) {
      error.capture(ErrorCode::device_failure, backend.lost_reason());
    }
    error.rethrow_if_any();
  }
  /// Waits for the device to reach the event, without the lock meanwhile. Counted.
  void synchronize(std::unique_lock<std::mutex>& lock, device::Event event, const char* who) {
    stats.host_device_syncs += 1;
    lock.unlock();
    try {
      backend.synchronize(event, who);
    } catch (...) {
      lock.lock();
      throw;
    }
    lock.lock();
  }
  /// Waits until `condition()` or broken(), then throws if broken.
  template <class Condition>
  void wait_until(std::unique_lock<std::mutex>& lock, Condition condition, const char* who) {
    backend.waiter().wait(
        lock, [&] { return condition() || broken(); }, who);
    throw_if_broken();
  }
};

}  // namespace outboard::pipeline
