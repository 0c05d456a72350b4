// SPDX-License-Identifier: Apache-2.0
// How a pipeline comes to be, what it holds, and how it ends.
#include <algorithm>
#include <array>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <string>

#include "core/host_layout.hpp"
#include "optim/rule_scalars.hpp"
#include "optim/state_layout.hpp"
#include "pipeline/step.hpp"
#include "plan/placement.hpp"

namespace outboard::pipeline {
namespace {

static_assert(optim::kMaxStreams <= core::kMaxStateStreams, "a lease holds every stream");

std::vector<memory::StreamSpec> stream_specs(const optim::StateLayout& streams) {
  std::vector<memory::StreamSpec> specs;
  for (const std::string& purpose : streams.purposes)
    specs.push_back({purpose, optim::kStateBytes});
  return specs;
}

/// The first phase of a rule of two reads gradient and master and renews the rule's streams; the
/// second reads those and writes the rest.
UpdateBytes update_bytes(const Parameter& parameter) {
  const std::size_t element = dtype_bytes(parameter.dtype);
  const std::size_t rule = optim::kStateBytes * parameter.rule_streams;
  const std::size_t rest = 2 * optim::kStateBytes * (parameter.has_ema ? 2 : 1);
  if (!parameter.two_phase) return {0, 2 * element + 2 * rule + rest};
  return {element + optim::kStateBytes + 2 * rule, rule + rest + element};
}

/// Scalars of the norm, then counts of overflowed weights, then the digest's sum.
std::size_t digest_offset(std::size_t parameters) {
  return parameters * (sizeof(device::GradientScalars) + sizeof(std::uint64_t));
}
std::size_t scalar_bytes(std::size_t parameters) {
  return digest_offset(parameters) + sizeof(std::uint64_t);
}

FlowOptions flow_options(const Config& config) {
  FlowOptions options;
  options.schedule = config.schedule;
  options.check_waits = config.check_waits;
  if (config.accumulate == Accumulate::host) options.micro_batches = config.accumulation;
  return options;
}

}  // namespace

Pipeline::Pipeline(device::Backend& backend, exec::Executor& executor,
                   const topology::Machine& machine, const Config& config, const Model& model)
    : config_(config), flow_(backend, executor, flow_options(config)) {
  try {
    create_tables(machine, model);
    create_memory(machine);
    create_streams_and_events();
    create_stages();
    report_bindings();
    report_staging();
    load(model.parameters);
    deliver_news();
  } catch (...) {
    wait_for_work_in_flight();
    release();
    throw;
  }
}

Pipeline::~Pipeline() {
  wait_for_work_in_flight();
  release();
}

void Pipeline::create_tables(const topology::Machine& machine, const Model& model) {
  std::vector<plan::ParameterShape> shapes;
  std::vector<bool> used(model.groups.size());
  for (const ParameterInput& input : model.parameters) {
    // LAMB's norms and a sum's are added up where the state lives.
    const bool whole = config_.accumulate == Accumulate::host ||
                       std::holds_alternative<Lamb>(model.groups[input.group].rule);
    shapes.push_back({input.elems, input.dtype, whole});
    used[input.group] = true;
  }
  std::vector<double> weights;
  for (std::uint32_t node = 0; node < machine.nodes.size(); ++node) {
    weights.push_back(flow_.executor.threads(node));
  }
  flow_.streams = optim::make_state_layout(model.groups, used);
  plan::PlacedModel placed = plan::place_model(shapes, config_.bucket_bytes, weights,
                                               plan::wish_of(config_, flow_.streams.elem_bytes()));
  flow_.layout = std::move(placed.layout);
  create_parameters(model);
  flow_.segments.resize(flow_.layout.segments.size());
  flow_.buckets.resize(flow_.layout.buckets.size());
  flow_.set_homes(placed.resident);
  host_room_ = std::move(placed.host_room);
  flow_.weight_overflows = std::make_unique<std::atomic<std::uint64_t>[]>(model.parameters.size());
  reported_overflows_.assign(model.parameters.size(), 0);
  // An update of each bucket or a norm of each segment, a task for each buffer of the ring, and
  // with an open gate one for the scalars of each bucket.
  flow_.executor.reserve(std::max(flow_.buckets.size(), flow_.segments.size()) + 64 +
                         (flow_.open_gate() ? flow_.buckets.size() : 0));
}

void Pipeline::create_parameters(const Model& model) {
  flow_.parameters.resize(model.parameters.size());
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const ParameterInput& input = model.parameters[i];
    const optim::Group& group = model.groups[input.group];
    Parameter& parameter = flow_.parameters[i];
    parameter.name = input.name;
    parameter.weight = input.weight;
    parameter.dtype = input.dtype;
    parameter.elems = input.elems;
    parameter.group = input.group;
    parameter.segments = flow_.layout.parameters[i];
    parameter.rule_streams = optim::rule_streams(group.rule).size();
    parameter.has_ema = group.options.ema_decay.has_value();
    parameter.two_phase = std::holds_alternative<Lamb>(group.rule);
    parameter.initial_state = optim::initial_state(group.rule);
    parameter.update_bytes = update_bytes(parameter);
  }
}

void Pipeline::create_memory(const topology::Machine& machine) {
  const std::size_t scalars = scalar_bytes(flow_.parameters.size());
  device_scalars_ = flow_.backend.allocate(scalars);
  host_scalars_ =
      memory::PinnedRegion(flow_.backend, memory::NumaArena(machine, 0, scalars, "gate scalars"));
  std::memset(host_scalars_.bytes().data(), 0, scalars);
  resident_.emplace(flow_);
  resident_->allocate(config_.device_budget_bytes);
  if (std::ranges::find(host_room_, true) != host_room_.end()) create_host_memory(machine);
  flow_.options.uploads_ahead = flow_.backend.stream_memory_ops() && all_slots_direct() &&
                                config_.schedule != Schedule::serial && !flow_.open_gate();
}

void Pipeline::create_host_memory(const topology::Machine& machine) {
  flow_.state = memory::StateStore(machine, stream_specs(flow_.streams), flow_.layout.node_elems);
  std::vector<memory::SlotSpec> specs;
  std::vector<std::size_t> with_slot;
  for (std::size_t i = 0; i < flow_.buckets.size(); ++i) {
    if (!host_room_[i]) continue;
    const plan::Bucket& bucket = flow_.layout.buckets[i];
    specs.push_back({bucket.node, bucket.slot_bytes()});
    with_slot.push_back(i);
  }
  const bool sums = flow_.options.micro_batches > 0;
  staging_ = memory::StagingPool(flow_.backend, machine, specs, {config_.pinned_slots, sums});
  slots_ = specs.size();
  if (sums) {
    host_sums_.emplace(flow_, machine);
    flow_.sums = &*host_sums_;
  }
  for (std::size_t i = 0; i < slots_; ++i) flow_.buckets[with_slot[i]].slot = staging_.slot(i);
  for (const memory::SlotView& buffer : staging_.ring()) {
    std::memset(buffer.bytes.data(), 0, buffer.bytes.size());
  }
}

bool Pipeline::all_slots_direct() const {
  return staging_.direct_slots() == slots_;
}

void Pipeline::create_streams_and_events() {
  device::Backend& backend = flow_.backend;
  streams_created_ = true;
  flow_.norm = backend.create_stream("norm");
  flow_.down = backend.create_stream("gradients down");
  flow_.up = backend.create_stream("weights up");
  if (flow_.open_gate()) {
    flow_.past_readers = backend.create_stream("past readers");
    flow_.resident_updates = backend.create_stream("resident updates");
  }
  for (Parameter& parameter : flow_.parameters) {
    parameter.ready = backend.create_event();
    parameter.reduced = backend.create_event();
    if (flow_.open_gate()) parameter.scalars_known = backend.create_event();
  }
  for (SegmentRun& segment : flow_.segments) segment.arrived = backend.create_event();
  for (BucketRun& bucket : flow_.buckets) {
    bucket.refreshed = backend.create_event();
    if (flow_.options.uploads_ahead && !bucket.slot.bytes.empty()) {
      bucket.flag = backend.create_flag();
    }
    if (flow_.open_gate()) bucket.readers_passed = backend.create_event();
  }
  uploads_passed_ = backend.create_event();
}

void Pipeline::create_stages() {
  const std::size_t count = flow_.parameters.size();
  const std::span<std::byte> host = host_scalars_.bytes();
  auto* device_sum = static_cast<std::byte*>(device_scalars_) + digest_offset(count);
  readers_.emplace(flow_.backend);
  gate_.emplace(flow_,
                GateSettings{config_.max_grad_norm, config_.accumulation, config_.loss_scaling},
                device_scalars_, host.first(digest_offset(count)));
  if (flow_.resident_count > 0) gate_->fetch_overflow_counts();
  whole_state_.emplace(
      flow_, *resident_,
      WholeState::Scalars{device_scalars_, host, device_sum,
                          host.subspan(digest_offset(count), sizeof(std::uint64_t))});
  weight_in_.emplace(flow_);
  update_.emplace(flow_, static_cast<UpdateListener&>(*this));
  gradient_out_.emplace(flow_, device_scalars_, *update_);
  gradient_out_->set_resident(&*resident_);
  if (flow_.open_gate()) {
    open_gate_.emplace(flow_, *gate_, *readers_, static_cast<OpenGateListener&>(*this));
  }
  if (staging_.ring().empty()) return;
  ring_.emplace(flow_, staging_.ring(), static_cast<BounceListener&>(*this));
  gradient_out_->set_ring(&*ring_);
  weight_in_->set_ring(&*ring_);
  if (open_gate_) open_gate_->set_ring(&*ring_);
}

void Pipeline::load(std::span<const ParameterInput> parameters) {
  std::vector<std::span<const float>> masters;
  for (const ParameterInput& input : parameters) masters.push_back(input.master);
  std::unique_lock lock(flow_.mutex);
  auto* counts = static_cast<std::byte*>(device_scalars_);
  flow_.backend.fill_zero(flow_.up, counts, scalar_bytes(flow_.parameters.size()));
  load(lock, masters);
  if (config_.placement == Placement::automatic) start_automatic(lock);
  flow_.stats = {};
  busy_before_ns_ = busy_ns();
}

/// State that has room on the host is made there, by its nodes, and then goes where it belongs.
void Pipeline::load(std::unique_lock<std::mutex>& lock,
                    std::span<const std::span<const float>> masters) {
  const std::vector<bool> resident = flow_.homes();
  std::vector<bool> without_room = host_room_;
  without_room.flip();
  flow_.set_homes(without_room);
  whole_state_->load(lock, masters);
  flow_.set_homes(resident);
  if (resident != without_room) whole_state_->move_to_device(lock);
}

/// Once for all arenas: what refuses one binding refuses the others.
void Pipeline::report_bindings() {
  for (const auto& info : flow_.state.arenas()) {
    if (info.arena.binding_note().empty()) continue;
    warn("memory binding: " + info.arena.binding_note() +
         "; pages lie where they are first touched, which is on their node as long as its workers "
         "are bound");
    return;
  }
}

void Pipeline::report_staging() {
  const bool rest_is_pinned = all_slots_direct();
  if (!host_scalars_.pinned() && rest_is_pinned) {  // else one warning says it for both
    warn(
        "pinned host memory: the device refuses to pin the gate's scalars; each step() waits for a "
        "slower copy. Raise the limit on locked memory (ulimit -l)");
  }
  if (rest_is_pinned) return;
  const std::string wanted = std::to_string(staging_.wanted_bytes());
  const std::string obtained = std::to_string(staging_.pinned_bytes());
  warn("pinned host memory: staging wants " + wanted + " bytes, " + obtained + " are pinned" +
       (staging_.ring_pinned() ? "" : " (the device refuses to pin even a bounce buffer)") + "; " +
       std::to_string(slots_ - staging_.direct_slots()) + " of " + std::to_string(slots_) +
       " buckets go through a bounce ring, at 4 more bytes of host traffic per parameter; raise "
       "Config::pinned_slots or the limit on locked memory (ulimit -l)");
}

void Pipeline::wait_for_work_in_flight() noexcept {
  std::unique_lock lock(flow_.mutex);
  const auto idle = [&] {
    return flow_.tasks_pending == 0 && (flow_.callbacks_pending == 0 || flow_.backend.lost());
  };
  try {
    flow_.backend.waiter().wait(lock, idle, "the engine's destruction: work in flight");
  } catch (const std::exception& failure) {
    if (lock.owns_lock()) lock.unlock();
    if (!config_.log) return;
    try {
      std::istringstream lines(failure.what());
      for (std::string line; std::getline(lines, line);) config_.log(LogLevel::error, line);
    } catch (...) {  // a destructor has nobody to tell
    }
  }
}

void Pipeline::release() noexcept {
  device::Backend& backend = flow_.backend;
  if (streams_created_) {
    for (const NativeStream stream :
         {flow_.norm, flow_.down, flow_.up, flow_.past_readers, flow_.resident_updates}) {
      if (stream != NativeStream{}) backend.destroy_stream(stream);
    }
    wait_for_work_in_flight();  // tasks that a lost device's last callbacks have posted
  }
  auto_.reset();
  open_gate_.reset();
  whole_state_.reset();
  ring_.reset();
  gradient_out_.reset();
  update_.reset();
  weight_in_.reset();
  gate_.reset();
  resident_.reset();
  readers_.reset();
  const auto destroy = [&](device::Event event) {
    if (event.index != device::Event{}.index) backend.destroy_event(event);
  };
  for (const Parameter& parameter : flow_.parameters) {
    destroy(parameter.ready);
    destroy(parameter.reduced);
    destroy(parameter.scalars_known);
  }
  for (const SegmentRun& segment : flow_.segments) destroy(segment.arrived);
  for (const BucketRun& bucket : flow_.buckets) {
    destroy(bucket.refreshed);
    destroy(bucket.readers_passed);
    if (bucket.flag.index != device::Flag{}.index) backend.destroy_flag(bucket.flag);
  }
  destroy(uploads_passed_);
  if (device_scalars_ != nullptr) backend.release(device_scalars_);
}

// --- what it holds ------------------------------------------------------------------------------

StepStats Pipeline::stats() {
  const std::lock_guard lock(flow_.mutex);
  StepStats stats = flow_.stats;
  stats.update_busy_us = static_cast<double>(busy_ns() - busy_before_ns_) * 1e-3;
  stats.device_fraction = flow_.share().fraction();
  if (auto_) stats.predicted_step_us = auto_->predicted_us();
  if (auto_) stats.measured_step_us = auto_->measured_us();
  return stats;
}

std::int64_t Pipeline::busy_ns() const {
  std::int64_t sum = 0;
  for (std::uint32_t node = 0; node < flow_.executor.nodes(); ++node) {
    sum += flow_.executor.busy_ns(node);
  }
  return sum;
}

MemoryLedger Pipeline::ledger() {
  MemoryLedger ledger;
  for (const Parameter& parameter : flow_.parameters) ledger.trainable_elems += parameter.elems;
  for (const auto& info : flow_.state.arenas()) {
    if (info.arena.bytes().empty()) continue;
    ledger.entries.push_back({info.purpose, MemoryPlace::host_pageable, info.arena.node(),
                              info.arena.bytes().size(), info.arena.bytes().data()});
  }
  for (const auto& info :
       host_sums_ ? host_sums_->arenas() : std::vector<memory::StateStore::ArenaInfo>{}) {
    if (info.arena.bytes().empty()) continue;
    ledger.entries.push_back({info.purpose, MemoryPlace::host_pageable, info.arena.node(),
                              info.arena.bytes().size(), info.arena.bytes().data()});
  }
  for (const auto& region : staging_.regions()) {
    ledger.entries.push_back({region.purpose,
                              region.pinned ? MemoryPlace::host_pinned : MemoryPlace::host_pageable,
                              region.node, region.bytes.size(), region.bytes.data()});
  }
  const auto scalars = host_scalars_.bytes();
  ledger.entries.push_back(
      {"gate scalars",
       host_scalars_.pinned() ? MemoryPlace::host_pinned : MemoryPlace::host_pageable,
       host_scalars_.node(), scalars.size(), scalars.data()});
  ledger.entries.push_back({"gate scalars", MemoryPlace::device, 0,
                            scalar_bytes(flow_.parameters.size()), device_scalars_});
  const auto add_device = [&](const std::string& purpose, std::size_t bytes, const void* address) {
    if (bytes > 0) ledger.entries.push_back({purpose, MemoryPlace::device, 0, bytes, address});
  };
  for (std::size_t i = 0; i < flow_.streams.streams(); ++i) {
    add_device(flow_.streams.purposes[i], resident_->stream_bytes(), resident_->stream(i));
  }
  add_device("block norms", resident_->norm_bytes(), resident_->norms());
  add_device("gradient accumulator", resident_->sum_bytes(), resident_->sums());
  return ledger;
}

std::string Pipeline::describe_placement() const {
  const std::size_t all = flow_.buckets.size();
  const std::string text = std::string("placement: ") + (auto_ ? "automatic, " : "") +
                           std::to_string(all) + " buckets, ";
  if (flow_.resident_count == 0) return text + "all on the host\n";
  if (flow_.resident_count == all) return text + "all device-resident\n";
  std::ostringstream share;
  share << std::fixed << std::setprecision(1) << 100.0 * flow_.share().fraction();
  return text + std::to_string(flow_.resident_count) + " device-resident (" + share.str() +
         " % of the state), " + std::to_string(all - flow_.resident_count) + " on the host\n";
}

std::string Pipeline::describe() {
  std::string text = describe_placement();
  if (slots_ == 0) return text;
  text += "staging: " + std::to_string(staging_.direct_slots()) + " of " + std::to_string(slots_) +
          " slots pinned, bounce ring of " + std::to_string(staging_.ring().size()) + "\n";
  text +=
      std::string("uploads: ") +
      (flow_.options.uploads_ahead ? "queued at the gate, behind flags" : "queued when updated") +
      "\n";
  return text;
}

}  // namespace outboard::pipeline
