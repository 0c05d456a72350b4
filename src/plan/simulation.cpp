// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "outboard/error.hpp"

namespace outboard::plan {
namespace {

/// Streamed state can outlast its step, so the first steps differ from the later ones.
constexpr int kStepsUntilSteady = 3;
/// Micro-batches: the first one's copies begin late, the last one's end after it.
constexpr std::uint32_t kSimulatedMicroBatches = 2;
constexpr std::uint32_t kNone = UINT32_MAX;

std::uint64_t gradient_count(const StepModel& model, std::span<const BucketPlace> places) {
  std::uint64_t count = 0;
  for (std::size_t b = 0; b < places.size(); ++b) {
    if (places[b].home == Home::host) count += model.buckets[b].gradients;
  }
  return count;
}

}  // namespace

double Simulation::Fifo::waits_since_us() const {
  return empty() ? std::numeric_limits<double>::infinity()
                 : std::max(items[head].since_us, free_us);
}

Simulation::Op Simulation::Fifo::pop() {
  const Op op = items[head++];
  if (head == items.size()) items.clear(), head = 0;
  return op;
}

Simulation::Simulation(const StepModel& model, const Rates& rates, StepSchedule schedule)
    : model_(model), rates_(rates), schedule_(schedule) {
  units_.resize(kFirstNode + rates.node_elems_per_s.size());
  ready_.resize(rates.node_elems_per_s.size());
  runs_.resize(model.buckets.size());
  if (!sums()) return;
  pieces_.resize(model.backward.size());
  additions_.resize(ready_.size());
}

const Prediction& Simulation::run(std::span<const BucketPlace> places,
                                  std::vector<TimelineEntry>* timeline) {
  check(places);
  simulated_ = std::max(model_.micro_batches, 1U);
  if (timeline == nullptr) simulated_ = std::min(simulated_, kSimulatedMicroBatches);
  begin_run(places);
  const int steps = streamed_.empty() ? 1 : kStepsUntilSteady;
  for (int step = 1; step <= steps; ++step) {
    timeline_ = step == steps ? timeline : nullptr;
    begin_step();
    run_step();
  }
  result_.step_us = now_us_ - step_start_us_;
  result_.compute_us = units_[kCompute].busy_us;
  result_.link_down_us = units_[kDown].busy_us;
  result_.link_up_us = units_[kUp].busy_us;
  for (std::size_t n = 0; n < ready_.size(); ++n) {
    result_.node_us[n] = units_[kFirstNode + n].busy_us;
  }
  if (model_.micro_batches > simulated_) add_other_micro_batches();
  return result_;
}

void Simulation::check(std::span<const BucketPlace> places) const {
  if (places.size() != model_.buckets.size()) {
    throw Error(ErrorCode::invalid_argument,
                "simulate(): " + std::to_string(places.size()) + " places for " +
                    std::to_string(model_.buckets.size()) + " buckets; give one for each");
  }
  for (std::size_t b = 0; b < places.size(); ++b) {
    if (places[b].home != Home::host || places[b].node < ready_.size()) continue;
    throw Error(ErrorCode::invalid_argument, "simulate(): bucket " + std::to_string(b) +
                                                 " is on node " + std::to_string(places[b].node) +
                                                 ", and Rates::node_elems_per_s has " +
                                                 std::to_string(ready_.size()) + " entries");
  }
}

void Simulation::begin_run(std::span<const BucketPlace> places) {
  places_ = places;
  now_us_ = 0.0;
  for (Unit& unit : units_) unit = {};
  for (BucketRun& run : runs_) run = {};
  for (Fifo& kernels : kernels_) kernels.reset();
  scalars_queue_.reset();
  down_queue_.reset();
  trainer_ended_us_ = 0.0;
  hosted_.clear();
  streamed_.clear();
  for (std::uint32_t b = 0; b < places.size(); ++b) {
    if (places[b].home == Home::host) hosted_.push_back(b);
    if (places[b].home == Home::device_streamed) streamed_.push_back(b);
  }
  // With an open gate they are updated in the order of backward.
  if (schedule_ == StepSchedule::open) std::ranges::reverse(streamed_);
  device_has_state_ = hosted_.size() < places.size();
  scalars_bytes_ = kGateBytesPerParameter + (device_has_state_ ? kOverflowCountBytes : 0);
  next_state_ = streamed_.size();  // begin_step() moves it to the first
  free_buffers_ = kStreamBuffers;
  free_unpack_buffers_ = core::kUnpackBuffers;
  result_.events = 0;
}

void Simulation::begin_step() {
  step_start_us_ = now_us_;
  for (Unit& unit : units_) unit.busy_us = 0.0;
  for (std::size_t b = 0; b < runs_.size(); ++b) {
    BucketRun& run = runs_[b];
    run.missing = run.ungiven = model_.buckets[b].gradients;
    const auto index = static_cast<std::uint32_t>(b);
    run.unjudged = schedule_ == StepSchedule::open && judged_by_scalars(index);
    run.missing += run.unjudged ? 1 : 0;
    run.posted = run.updated = run.refreshed = false;
  }
  open_uploads_.clear();
  unknown_ = schedule_ == StepSchedule::open ? runs_.size() : 0;
  unasked_ = 0;
  next_upload_ = 0;
  rest_sent_ = false;
  next_state_ -= streamed_.size();
  next_backward_ = next_forward_ = 0;
  next_need_ = blocked_on_ = norms_left_ = 0;
  weights_here_us_ = 0.0;
  for (const StepModel::Backward& work : model_.backward) norms_left_ += work.norms;
  backward_left_ = model_.backward.size() * simulated_;
  forward_left_ = model_.forward.size();
  gradients_left_ = gradient_count(model_, places_);
  unrefreshed_ = runs_.size();
  updates_left_ = hosted_.size();
  gate_ = schedule_ == StepSchedule::open ? Gate::open : Gate::closed;
  result_.forward_us = model_.forward_us;
  result_.backward_us =
      model_.backward_us + (simulated_ - 1) * (model_.forward_us + model_.backward_us);
  result_.exposed = {};
  result_.bytes_down = result_.bytes_up = 0;
  result_.node_us.assign(ready_.size(), 0.0);
  if (sums()) begin_sums();
  try_gate();
}

void Simulation::run_step() {
  start_idle_units();
  while (forward_left_ > 0) {
    advance_to_next_end();
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      if (units_[unit].busy && units_[unit].end_us <= now_us_) finish(unit);
    }
    if (forward_left_ > 0) start_idle_units();
  }
}

void Simulation::advance_to_next_end() {
  double next = std::numeric_limits<double>::infinity();
  for (const Unit& unit : units_) {
    if (unit.busy) next = std::min(next, unit.end_us);
  }
  if (next == std::numeric_limits<double>::infinity()) {
    throw Error(ErrorCode::deadlock, "simulate(): bucket " + std::to_string(blocked_on_) +
                                         " is never refreshed; a rate is not a number");
  }
  charge_exposed(next - now_us_);
  now_us_ = next;
}

// --- what starts --------------------------------------------------------------------------------

void Simulation::start(std::size_t index, const Op& op) {
  Unit& unit = units_[index];
  unit.busy = true;
  unit.op = op;
  unit.end_us = now_us_ + op.duration_us;
  unit.busy_us += op.duration_us;
  if (index == kDown) result_.bytes_down += op.bytes;
  if (index == kUp) result_.bytes_up += op.bytes;
  if (timeline_ == nullptr) return;
  const bool of_sum = sums() && (op.kind == OpKind::gradient || op.kind == OpKind::sum);
  const std::uint32_t shown = of_sum ? model_.gradients[op.index].bucket : op.index;
  const std::size_t resource = std::min(index, kFirstNode);
  timeline_->push_back({static_cast<Resource>(resource),
                        static_cast<std::uint32_t>(index - resource), op.kind, shown,
                        now_us_ - step_start_us_, unit.end_us - step_start_us_});
}

void Simulation::start_idle_units() {
  if (!units_[kCompute].busy) start_compute();
  if (!units_[kDown].busy) start_down();
  if (!units_[kUp].busy) start_up();
  for (std::uint32_t node = 0; node < ready_.size(); ++node) {
    if (!units_[kFirstNode + node].busy) start_node(node);
  }
}

void Simulation::start_from(std::size_t unit, Fifo& fifo) {
  const Op op = fifo.pop();
  fifo.free_us = now_us_ + op.duration_us;
  start(unit, op);
}

/// First come, first served; at the same moment the engine's kernels come first.
void Simulation::start_compute() {
  Fifo& kernels = *std::ranges::min_element(kernels_, {}, &Fifo::waits_since_us);
  const double trainer_us = trainer_waits_since_us();
  if (!kernels.empty() && kernels.waits_since_us() <= trainer_us) {
    start_from(kCompute, kernels);
  } else if (trainer_us < std::numeric_limits<double>::infinity()) {
    start_trainers();
  }
}

/// Since when the trainer's next kernel could run; infinity if it cannot yet.
double Simulation::trainer_waits_since_us() {
  bool ready = pass_due_;
  if (!ready && next_backward_ < model_.backward.size()) {
    // Where the gradient of the micro-batch before still lies there is no room for this one's.
    ready = !sums() || pieces_[next_backward_].untaken == 0;
  } else if (!ready && backward_left_ == 0 && next_forward_ready()) {
    return std::max(trainer_ended_us_, weights_here_us_);
  }
  return ready ? trainer_ended_us_ : std::numeric_limits<double>::infinity();
}

void Simulation::start_trainers() {
  if (pass_due_) {
    pass_due_ = false;
    micro_batch_ += 1;
    start(kCompute, {OpKind::pass, micro_batch_, model_.forward_us, 0});
  } else if (next_backward_ < model_.backward.size()) {
    const auto piece = static_cast<std::uint32_t>(next_backward_++);
    start(kCompute, {OpKind::backward, piece, model_.backward[piece].us, 0});
  } else {
    const auto piece = static_cast<std::uint32_t>(next_forward_++);
    next_need_ = 0;
    weights_here_us_ = 0.0;
    start(kCompute, {OpKind::forward, piece, model_.forward[piece].us, 0});
  }
}

bool Simulation::next_forward_ready() {
  if (next_forward_ == model_.forward.size()) return false;
  if (gate_ != Gate::open || unknown_ > 0) return false;  // step() has not returned
  const bool all = schedule_ == StepSchedule::blocking || schedule_ == StepSchedule::serial;
  if (all && unrefreshed_ > 0) {
    while (runs_[blocked_on_].refreshed) ++blocked_on_;
    return false;
  }
  const StepModel::Forward& work = model_.forward[next_forward_];
  for (; next_need_ < work.needs; ++next_need_) {
    blocked_on_ = model_.needs[work.first_need + next_need_];
    if (!runs_[blocked_on_].refreshed) return false;
    weights_here_us_ = std::max(weights_here_us_, runs_[blocked_on_].refreshed_us);
  }
  return true;
}

/// The bucket whose weights go next, or kNone. Behind a gate they go in forward order, whatever was
/// updated first: they were queued when it opened. With an open gate, in the order of the updates.
std::uint32_t Simulation::next_upload() const {
  const std::vector<std::uint32_t>& order =
      schedule_ == StepSchedule::open ? open_uploads_ : hosted_;
  if (next_upload_ == order.size()) return kNone;
  const std::uint32_t next = order[next_upload_];
  if (!runs_[next].updated) return kNone;
  if (schedule_ == StepSchedule::serial && updates_left_ > 0) return kNone;
  return rest_goes_first(next) || free_unpack_buffers_ > 0 ? next : kNone;
}

/// What is not packed needs no buffer on the device, and is queued before what is.
bool Simulation::rest_goes_first(std::uint32_t bucket) const {
  const StepModel::Bucket& shape = model_.buckets[bucket];
  return !rest_sent_ && (shape.unpacks == 0 || shape.copies > shape.unpacks);
}

bool Simulation::state_ready() const {
  if (free_buffers_ == 0 || next_state_ >= 2 * streamed_.size()) return false;
  const BucketRun& run = runs_[streamed_[next_state_ % streamed_.size()]];
  const bool of_next_step = next_state_ >= streamed_.size();
  return !run.state_here && !run.state_leaving && (!of_next_step || run.updated);
}

void Simulation::start_down() {
  Fifo& older = scalars_queue_.waits_since_us() <= down_queue_.waits_since_us() ? scalars_queue_
                                                                                : down_queue_;
  if (!older.empty()) return start_from(kDown, older);
  if (sum_queue_.empty() || ring_free_ == 0) return;
  ring_free_ -= 1;
  start_from(kDown, sum_queue_);
}

void Simulation::start_up() {
  const std::uint32_t upload = next_upload();
  const bool of_next_step = next_state_ >= streamed_.size();
  const bool state = state_ready();
  if (upload != kNone && (!state || of_next_step || upload < streamed_[next_state_])) {
    start_upload(upload);
  } else if (state) {
    const std::uint32_t bucket = streamed_[next_state_++ % streamed_.size()];
    free_buffers_ -= 1;
    start(kUp, state_op(OpKind::state_in, bucket));
  }
}

void Simulation::start_upload(std::uint32_t bucket) {
  const StepModel::Bucket& shape = model_.buckets[bucket];
  const bool rest = rest_goes_first(bucket);
  rest_sent_ = rest && shape.unpacks > 0;
  next_upload_ += rest_sent_ ? 0 : 1;
  if (rest) {
    start(kUp, copy_op(OpKind::weight, bucket, shape.copies - shape.unpacks,
                       shape.bytes - shape.packed_bytes));
  } else {
    free_unpack_buffers_ -= 1;
    start(kUp, copy_op(OpKind::weight, bucket, shape.unpacks, shape.packed_bytes));
  }
}

void Simulation::start_node(std::uint32_t node) {
  if (sums() && !additions_[node].empty()) return start_from(kFirstNode + node, additions_[node]);
  std::vector<std::uint32_t>& heap = ready_[node];
  if (heap.empty()) return;
  std::ranges::pop_heap(heap, std::greater<>());
  const std::uint32_t bucket = heap.back();
  heap.pop_back();
  const auto elems = static_cast<double>(model_.buckets[bucket].elems);
  start(kFirstNode + node,
        {OpKind::update, bucket, duration_us(elems, rates_.node_elems_per_s[node]), 0});
}

Simulation::Op Simulation::copy_op(OpKind kind, std::uint32_t bucket, std::uint32_t copies,
                                   std::uint64_t bytes) const {
  const bool up = kind == OpKind::weight || kind == OpKind::state_in;
  const double rate = up ? rates_.link_up_bytes_per_s : rates_.link_down_bytes_per_s;
  const double us = copies * rates_.copy_us + duration_us(static_cast<double>(bytes), rate);
  return {kind, bucket, us, bytes};
}

/// One copy for each stream of the state.
Simulation::Op Simulation::state_op(OpKind kind, std::uint32_t bucket) const {
  const std::uint64_t bytes = model_.streamed_bytes_per_elem();
  return copy_op(kind, bucket, static_cast<std::uint32_t>(bytes / sizeof(float)),
                 model_.buckets[bucket].padded_elems * bytes);
}

Simulation::Op Simulation::device_update(std::uint32_t bucket) const {
  const StepModel::Bucket& shape = model_.buckets[bucket];
  const auto elems = static_cast<double>(shape.device_elems);
  return {OpKind::update, bucket,
          shape.kernels * rates_.kernel_us + duration_us(elems, rates_.device_elems_per_s), 0};
}

}  // namespace outboard::plan
