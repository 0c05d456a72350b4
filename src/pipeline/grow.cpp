// SPDX-License-Identifier: Apache-2.0
// What a commit() brings: tables, memory, events and the initial state of one generation of
// parameters. The first comes with the pipeline; a later one comes whole or not at all.
#include <algorithm>
#include <cstring>
#include <string>

#include "core/host_layout.hpp"
#include "memory/host_room.hpp"
#include "memory/reserved_credit.hpp"
#include "optim/rule_scalars.hpp"
#include "pipeline/guarded.hpp"
#include "pipeline/load_streams.hpp"
#include "plan/placement.hpp"

namespace outboard::pipeline {
namespace {

static_assert(optim::kMaxStreams <= core::kMaxStateStreams, "a lease holds every stream");

/// Names of parameters that a message holds.
constexpr std::size_t kNames = 8;

std::uint32_t count32(std::size_t size) {
  return static_cast<std::uint32_t>(size);
}

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

std::string stay_registered(std::span<const ParameterInput> parameters) {
  std::string names;
  for (std::size_t i = 0; i < parameters.size() && i < kNames; ++i) {
    names += (i == 0 ? "'" : ", '") + parameters[i].name + "'";
  }
  if (parameters.size() > kNames) {
    names += " and " + std::to_string(parameters.size() - kNames) + " more";
  }
  return " (not committed: " + names +
         "; what was committed before goes on as it was, and commit() may be called again)";
}

}  // namespace

// --- what is there before, to go back to --------------------------------------------------------

struct Pipeline::Mark {
  explicit Mark(Pipeline& pipeline)
      : generations(pipeline.flow_.generations.size()),
        rings(pipeline.rings_.size()),
        packings(pipeline.packings_.size()),
        sizes{pipeline.flow_.parameters.size(), pipeline.flow_.segments.size(),
              pipeline.flow_.buckets.size()},
        slots(pipeline.slots_),
        node_elems(pipeline.flow_.layout.node_elems),
        node_limits(pipeline.node_shares_.limits()),
        homes(pipeline.flow_.homes()),
        streamed(pipeline.streamed_->mark()),
        uploads_ahead(pipeline.flow_.options.uploads_ahead),
        sums(pipeline.flow_.sums),
        stats(pipeline.flow_.stats),
        busy_ns(pipeline.busy_ns()),
        scalars(std::move(pipeline.scalars_)) {}

  std::size_t generations, rings, packings;
  Sizes sizes;
  std::size_t slots;
  std::vector<std::uint64_t> node_elems;
  NodeShares::Limits node_limits;
  std::vector<plan::Home> homes;
  Streamed::Mark streamed;
  bool uploads_ahead;
  HostSums* sums;
  StepStats stats;
  std::int64_t busy_ns;
  ScalarTable scalars;
};

void Pipeline::grow(const topology::Machine& machine, const Model& model) {
  const Delivery delivery(*this);
  std::unique_lock lock(flow_.mutex);
  flow_.throw_if_broken();
  require_none_pending("commit()");
  try {
    if (auto_) auto_->restarted();
    settle(lock);
    add_generation(lock, machine, model);
  } catch (const Error& failure) {
    if (!lock.owns_lock()) lock.lock();
    if (failure.code() == ErrorCode::deadlock || flow_.backend.lost()) {
      flow_.error.capture(failure.code(), failure.what());
      flow_.error.mark_reported();
      flow_.backend.waiter().wake();
    }
    if (flow_.broken()) throw;
    throw Error(failure.code(), failure.what() + stay_registered(model.parameters));
  }
}

/// Nothing of the step before is on its way to or from what is about to move.
void Pipeline::settle(std::unique_lock<std::mutex>& lock) {
  wait_for_idle(lock);
  if (!open_gate_) return;
  flow_.backend.record(uploads_passed_, flow_.device_updates);  // counts on their way
  flow_.synchronize(lock, uploads_passed_, "commit(): updates on the device");
}

void Pipeline::add_generation(std::unique_lock<std::mutex>& lock, const topology::Machine& machine,
                              const Model& model) {
  Mark mark(*this);
  std::unique_ptr<AutoPlacement> next;
  try {
    append_tables(machine, model);
    append_memory(lock, machine);
    append_events();
    append_ring();
    fit_stages();
    const LoadStreams streams(lock, flow_);
    load(lock, model.parameters, mark.scalars);
    if (config_.placement == Placement::automatic) next = start_automatic(lock);
    report_staging();
    pin_streamed_state();
    report_strays(machine);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    roll_back(mark);
    throw;
  }
  streamed_->settle();
  if (flow_.device_count() > 0) gate_->fetch_overflow_counts();
  auto_ = std::move(next);
  forget_work(mark);
}

/// What commit() itself does is no part of any step.
void Pipeline::forget_work(const Mark& mark) noexcept {
  flow_.stats = mark.stats;
  busy_before_ns_ += busy_ns() - mark.busy_ns;
}

void Pipeline::roll_back(Mark& mark) noexcept {
  const auto cut = [](auto& items, std::size_t size) {
    if (items.size() <= size) return;
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(size), items.end());
  };
  destroy_events(mark.sizes);
  cut(flow_.rings, mark.rings);
  cut(rings_, mark.rings);
  cut(flow_.packings, mark.packings);
  cut(packings_, mark.packings);
  resident_->release_from(mark.generations);
  streamed_->go_back(mark.streamed, mark.sizes.buckets);
  cut(flow_.generations, mark.generations);
  cut(flow_.parameters, mark.sizes.parameters);
  cut(flow_.segments, mark.sizes.segments);
  cut(flow_.buckets, mark.sizes.buckets);
  cut(flow_.layout.parameters, mark.sizes.parameters);
  cut(flow_.layout.segments, mark.sizes.segments);
  cut(flow_.layout.buckets, mark.sizes.buckets);
  flow_.layout.node_elems.swap(mark.node_elems);
  node_shares_.go_back(mark.node_limits);
  cut(host_room_, mark.sizes.buckets);
  cut(reported_overflows_, mark.sizes.parameters);
  slots_ = mark.slots;
  flow_.options.uploads_ahead = mark.uploads_ahead;
  if (flow_.sums != mark.sums) host_sums_.reset();
  flow_.sums = mark.sums;
  flow_.set_homes(mark.homes);
  scalars_ = std::move(mark.scalars);
  fit_stages();
  forget_work(mark);
}

// --- tables -------------------------------------------------------------------------------------

void Pipeline::append_tables(const topology::Machine& machine, const Model& model) {
  std::vector<plan::ParameterShape> shapes;
  std::vector<bool> used(model.groups.size());
  for (const ParameterInput& input : model.parameters) {
    // LAMB's norms and a sum's are added up where the state lives.
    const bool whole = config_.accumulate == Accumulate::host ||
                       std::holds_alternative<Lamb>(model.groups[input.group].rule);
    shapes.push_back({input.elems, input.dtype, whole});
    used[input.group] = true;
  }
  Generation& generation = flow_.generations.emplace_back();
  generation.streams = optim::make_state_layout(model.groups, used);
  plan::PlacementWish wish = plan::wish_of(config_, generation.streams.elem_bytes());
  const Flow::Share share = flow_.share();
  wish.other_elems = share.elems;
  wish.other_resident_elems = share.resident_elems;
  plan::PlacedModel placed =
      plan::place_model(shapes, config_.bucket_bytes, node_shares_.rates(), wish);
  node_shares_.fit(machine, placed, wish.memory.state_bytes_per_elem);
  generation.first_parameter = count32(flow_.parameters.size());
  generation.first_segment = count32(flow_.segments.size());
  generation.first_bucket = count32(flow_.buckets.size());
  generation.node_elems = placed.layout.node_elems;
  plan::append_layout(flow_.layout, placed.layout);
  generation.end_parameter = count32(flow_.layout.parameters.size());
  generation.end_bucket = count32(flow_.layout.buckets.size());
  append_parameters(model);
  append_buckets(placed);
}

void Pipeline::append_parameters(const Model& model) {
  const Generation& generation = flow_.generations.back();
  for (const ParameterInput& input : model.parameters) {
    const optim::Group& group = model.groups[input.group];
    Parameter& parameter = flow_.parameters.emplace_back();
    parameter.name = input.name;
    parameter.weight = input.weight;
    parameter.dtype = input.dtype;
    parameter.elems = input.elems;
    parameter.group = input.group;
    parameter.generation = count32(flow_.generations.size() - 1);
    parameter.segments = flow_.layout.parameters[flow_.parameters.size() - 1];
    parameter.rule_streams = optim::rule_streams(group.rule).size();
    parameter.has_ema = group.options.ema_decay.has_value();
    if (parameter.has_ema) parameter.ema_stream = generation.streams.ema_stream();
    parameter.two_phase = std::holds_alternative<Lamb>(group.rule);
    parameter.initial_state = optim::initial_state(group.rule);
    parameter.update_bytes = update_bytes(parameter);
  }
  const std::size_t count = flow_.parameters.size();
  auto overflows = std::make_unique<std::atomic<std::uint64_t>[]>(count);
  for (std::uint32_t i = 0; i < generation.first_parameter; ++i) {
    overflows[i] = flow_.weight_overflows[i].load();
  }
  flow_.weight_overflows = std::move(overflows);
  reported_overflows_.resize(count, 0);
}

void Pipeline::append_buckets(const plan::PlacedModel& placed) {
  std::vector<plan::Home> homes = flow_.homes();
  homes.insert(homes.end(), placed.homes.begin(), placed.homes.end());
  host_room_.insert(host_room_.end(), placed.host_room.begin(), placed.host_room.end());
  flow_.segments.resize(flow_.layout.segments.size());
  flow_.buckets.resize(flow_.layout.buckets.size());
  for (std::size_t i = flow_.generations.back().first_bucket; i < flow_.buckets.size(); ++i) {
    flow_.buckets[i].generation = count32(flow_.generations.size() - 1);
  }
  flow_.set_homes(homes);
  require_streamable(homes, "commit()");
  require_kernels(homes, "commit()");
  // An update of each bucket or a norm of each segment, a task for each buffer of the rings, and
  // with an open gate one for the scalars of each bucket.
  flow_.executor.reserve(std::max(flow_.buckets.size(), flow_.segments.size()) + 64 +
                         core::kGradientRingSlots * (rings_.size() + 1) +
                         (flow_.open_gate() ? flow_.buckets.size() : 0));
}

// --- memory -------------------------------------------------------------------------------------

void Pipeline::append_memory(std::unique_lock<std::mutex>& lock, const topology::Machine& machine) {
  scalars_ = ScalarTable(flow_.backend, machine, flow_.parameters.size());
  const std::vector<plan::Home> homes = flow_.homes();
  resident_->allocate_new(device_room(homes, config_.device_budget_bytes, Keep::held));
  streamed_->allocate();
  const auto first = static_cast<std::ptrdiff_t>(flow_.generations.back().first_bucket);
  if (std::find(host_room_.begin() + first, host_room_.end(), true) != host_room_.end()) {
    append_host_memory(lock, machine);
  }
  append_packing();
  flow_.options.uploads_ahead = flow_.backend.stream_memory_ops() && all_slots_direct() &&
                                config_.schedule != Schedule::serial && !flow_.open_gate() &&
                                uploads_fit_queue();
}

void Pipeline::append_host_memory(std::unique_lock<std::mutex>& lock,
                                  const topology::Machine& machine) {
  Generation& generation = flow_.generations.back();
  std::vector<memory::SlotSpec> specs;
  std::vector<std::size_t> with_slot;
  for (std::uint32_t i = generation.first_bucket; i < generation.end_bucket; ++i) {
    if (!host_room_[i]) continue;
    const plan::Bucket& bucket = flow_.layout.buckets[i];
    specs.push_back({bucket.node, bucket.slot_bytes()});
    with_slot.push_back(i);
  }
  const bool sums = flow_.options.micro_batches > 0;
  const BounceRing* ring = largest_ring();
  const memory::StagingPool::Options staging{unpinned_slots(), sums,
                                             ring == nullptr ? 0 : ring->buffer_bytes()};
  memory::StateHomes homes(machine);
  for (const memory::SlotSpec& slot : specs) homes.keep(slot.node, slot.bytes);
  preparation_.begin(
      require_host_room(homes, specs, memory::StagingPool::planned_bytes(specs, staging)));
  const auto touch = [&](std::span<const memory::FreshMemory> fresh) {
    return preparation_.touch(lock, fresh, Preparation::Ready::when_touched);
  };
  const auto touch_state = [&](std::span<const memory::FreshMemory> fresh) {
    return preparation_.touch(lock, fresh, Preparation::Ready::when_filled);
  };
  generation.state = memory::StateStore(homes, stream_specs(generation.streams),
                                        generation.node_elems, 0, touch_state);
  generation.staging = memory::StagingPool(flow_.backend, machine, specs, staging, touch);
  slots_ += specs.size();
  if (sums) {
    generation.sums = HostSums::make_store(homes, generation.node_elems, touch_state);
    if (!host_sums_) host_sums_.emplace(flow_);
    flow_.sums = &*host_sums_;
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    flow_.buckets[with_slot[i]].slot = generation.staging.slot(i);
  }
  for (const memory::SlotView& buffer : generation.staging.ring()) {
    std::memset(buffer.bytes.data(), 0, buffer.bytes.size());
  }
}

/// Before anything is mapped. @return what is going to be.
std::uint64_t Pipeline::require_host_room(memory::StateHomes homes,
                                          std::span<const memory::SlotSpec> slots,
                                          std::size_t staging_bytes) {
  const Generation& generation = flow_.generations.back();
  memory::HostNeed need{.staging_bytes = staging_bytes};
  memory::ReservedCredit credit(homes.machine());
  need.reserved_bytes = memory::StateStore::reserved_bytes(
      homes, credit, stream_specs(generation.streams), generation.node_elems);
  std::uint64_t elem_bytes = generation.streams.elem_bytes();
  if (flow_.options.micro_batches > 0) {
    elem_bytes += sizeof(float);
    // Is mapped before sums.
    memory::StagingPool::leave_reserved(credit, slots, staging_bytes,
                                        memory::node_beside(flow_.backend, homes.machine()));
    need.reserved_bytes += HostSums::reserved_bytes(homes, credit, generation.node_elems);
  }
  for (const std::uint64_t elems : generation.node_elems) need.state_bytes += elems * elem_bytes;
  // What staggers the streams lies in reserved pages too.
  need.reserved_bytes = std::min(need.reserved_bytes, need.state_bytes);
  const std::string warning = memory::check_host_room(need);
  if (!warning.empty()) warn(warning);
  return need.state_bytes + need.staging_bytes;
}

/// What earlier generations leave of the limit.
std::optional<std::size_t> Pipeline::unpinned_slots() const {
  if (!config_.pinned_slots) return {};
  std::size_t left = *config_.pinned_slots;
  for (const Generation& generation : flow_.generations) {
    left -= std::min(left, generation.staging.limited_slots());
  }
  return left;
}

BounceRing* Pipeline::largest_ring() const {
  const auto larger = [](const BounceRing* a, const BounceRing* b) {
    return a->buffer_bytes() < b->buffer_bytes();
  };
  const auto found = std::max_element(flow_.rings.begin(), flow_.rings.end(), larger);
  return found == flow_.rings.end() ? nullptr : *found;
}

/// What goes through the ring goes one by one.
void Pipeline::append_packing() {
  const Generation& generation = flow_.generations.back();
  bool any = false;
  for (std::uint32_t i = generation.first_bucket; i < generation.end_bucket; ++i) {
    plan::Bucket& bucket = flow_.layout.buckets[i];
    const bool goes_alone = !flow_.buckets[i].slot.direct || flow_.sums != nullptr;
    if (goes_alone || !flow_.backend.why_no_kernels().empty()) bucket.pack_nothing();
    any = any || bucket.packed_segments > 0;
  }
  if (!any) return;
  packings_.push_back(
      std::make_unique<Packing>(flow_, generation.first_bucket, generation.end_bucket));
  flow_.packings.push_back(packings_.back().get());
  packings_.back()->allocate();
  for (std::uint32_t i = generation.first_bucket; i < generation.end_bucket; ++i) {
    flow_.buckets[i].packing = packings_.back().get();
  }
}

void Pipeline::append_ring() {
  const Generation& generation = flow_.generations.back();
  const memory::StagingPool& staging = generation.staging;
  BounceRing* ring = nullptr;
  if (!staging.ring().empty()) {
    rings_.push_back(
        std::make_unique<BounceRing>(flow_, staging.ring(), static_cast<BounceListener&>(*this)));
    flow_.rings.push_back(ring = rings_.back().get());
  } else if (flow_.options.micro_batches > 0 || staging.direct_slots() < staging.slots()) {
    ring = largest_ring();
  }
  for (std::uint32_t i = generation.first_bucket; i < generation.end_bucket; ++i) {
    flow_.buckets[i].ring = ring;
  }
}

// --- events and stages --------------------------------------------------------------------------

void Pipeline::append_events() {
  device::Backend& backend = flow_.backend;
  const Generation& generation = flow_.generations.back();
  for (std::uint32_t i = generation.first_parameter; i < generation.end_parameter; ++i) {
    Parameter& parameter = flow_.parameters[i];
    parameter.ready = backend.create_event();
    parameter.reduced = backend.create_event();
    if (flow_.open_gate()) parameter.scalars_known = backend.create_event();
  }
  for (std::size_t i = generation.first_segment; i < flow_.segments.size(); ++i) {
    flow_.segments[i].arrived = backend.create_event();
  }
  for (std::uint32_t i = generation.first_bucket; i < generation.end_bucket; ++i) {
    BucketRun& bucket = flow_.buckets[i];
    bucket.refreshed = backend.create_event();
    if (flow_.options.uploads_ahead && !bucket.slot.bytes.empty()) {
      bucket.flag = backend.create_flag();
    }
    if (flow_.open_gate()) bucket.readers_passed = backend.create_event();
  }
}

void Pipeline::destroy_events(const Sizes& from) noexcept {
  const auto destroy = [&](device::Event event) {
    if (event.index != device::Event{}.index) flow_.backend.destroy_event(event);
  };
  for (std::size_t i = from.parameters; i < flow_.parameters.size(); ++i) {
    const Parameter& parameter = flow_.parameters[i];
    for (const device::Event event :
         {parameter.ready, parameter.reduced, parameter.scalars_known}) {
      destroy(event);
    }
  }
  for (std::size_t i = from.segments; i < flow_.segments.size(); ++i) {
    destroy(flow_.segments[i].arrived);
  }
  for (std::size_t i = from.buckets; i < flow_.buckets.size(); ++i) {
    const BucketRun& bucket = flow_.buckets[i];
    destroy(bucket.refreshed);
    destroy(bucket.readers_passed);
    if (bucket.flag.index != device::Flag{}.index) flow_.backend.destroy_flag(bucket.flag);
  }
}

WholeState::Scalars Pipeline::whole_state_scalars() const noexcept {
  return {scalars_.device(), scalars_.host(), scalars_.device_counts(), scalars_.device_sum(),
          scalars_.host_sum()};
}

/// To the tables as they are now, longer or, when nothing came of it, shorter: then it allocates
/// nothing.
void Pipeline::fit_stages() {
  gate_->set_scalars(scalars_.device(), scalars_.host());
  whole_state_->set_scalars(whole_state_scalars());
  gradient_out_->set_scalars(scalars_.device());
  update_->fit();
  if (host_sums_) host_sums_->fit();
  for (BounceRing* ring : flow_.rings) ring->fit();
  if (open_gate_) open_gate_->reset();
}

// --- the initial state --------------------------------------------------------------------------

/// State that has room on the host is made there, by its nodes, and then goes where it belongs.
/// `before`: counts of overflowed weights to take over.
void Pipeline::load(std::unique_lock<std::mutex>& lock, std::span<const ParameterInput> parameters,
                    const ScalarTable& before) {
  std::vector<std::span<const float>> masters;
  for (const ParameterInput& input : parameters) masters.push_back(input.master);
  flow_.backend.fill_zero(flow_.up, scalars_.device(), scalars_.bytes());
  if (const auto counts = before.host_counts(); !counts.empty()) {
    std::ranges::copy(counts, scalars_.host_counts().begin());
    flow_.backend.copy_on_device(scalars_.device_counts(), before.device_counts(), counts.size(),
                                 flow_.up);
  }
  const std::uint32_t first = flow_.generations.back().first_bucket;
  if (Packing* packing = flow_.buckets.size() > first ? flow_.buckets[first].packing : nullptr) {
    packing->load_tables(lock);
  }
  const std::vector<plan::Home> homes = flow_.homes();
  std::vector<plan::Home> at_first = homes;
  for (std::size_t i = first; i < at_first.size(); ++i) {
    at_first[i] = host_room_[i] ? plan::Home::host : plan::Home::device_resident;
  }
  flow_.set_homes(at_first);
  whole_state_->load(lock, masters);
  flow_.set_homes(homes);
  if (homes != at_first) whole_state_->move_to_device(lock, first);
}

}  // namespace outboard::pipeline
