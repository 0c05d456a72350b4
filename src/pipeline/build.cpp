// SPDX-License-Identifier: Apache-2.0
// How a pipeline comes to be, and how it ends. What commit() brings is in grow.cpp.
#include <cmath>
#include <sstream>
#include <string>

#include "pipeline/step.hpp"

namespace outboard::pipeline {
namespace {

FlowOptions flow_options(const Config& config) {
  FlowOptions options;
  options.schedule = config.schedule;
  options.check_waits = config.check_waits;
  options.rest_permille =
      static_cast<std::uint32_t>(std::lround(1000.0 / config.host.update_share - 1000.0));
  if (config.accumulate == Accumulate::host) options.micro_batches = config.accumulation;
  return options;
}

/// All on the host once means that there is room for all, now and for what comes later.
Config with_room_to_move(Config config) {
  if (config.placement == Placement::host || config.placement == Placement::device_streamed ||
      config.placement == Placement::automatic) {
    config.keep_host_room = true;
  }
  return config;
}

/// Elements of state that the host ever gets; those of a fraction before whole buckets round it.
std::uint64_t host_elems(const Config& config, std::span<const ParameterInput> parameters) {
  std::uint64_t elems = 0;
  for (const ParameterInput& input : parameters) elems += input.elems;
  if (config.keep_host_room) return elems;
  if (config.placement == Placement::device_resident) return 0;
  return static_cast<std::uint64_t>(static_cast<double>(elems) * (1.0 - config.device_fraction));
}

}  // namespace

Pipeline::Pipeline(device::Backend& backend, exec::Executor& executor,
                   const topology::Machine& machine, const Config& config, const Model& model)
    : config_(with_room_to_move(config)),
      flow_(backend, executor, flow_options(config)),
      node_shares_(flow_) {
  config_.placement = without_kernels_on_host(config_.placement);
  try {
    {
      std::unique_lock lock(flow_.mutex);
      node_shares_.decide(lock, machine, host_elems(config_, model.parameters));
    }
    resident_.emplace(flow_);
    streamed_.emplace(flow_, *resident_);
    append_tables(machine, model);
    flow_.preparation = &preparation_;
    {
      std::unique_lock lock(flow_.mutex);
      append_memory(lock, machine);
    }
    create_streams();
    append_events();
    create_stages();
    append_ring();
    report_bindings();
    report_staging();
    {
      std::unique_lock lock(flow_.mutex);
      load(lock, model.parameters, {});
      pin_streamed_state();
      report_strays(machine);
      if (config_.placement == Placement::automatic) auto_ = start_automatic(lock);
      flow_.stats = {};
      busy_before_ns_ = busy_ns();
    }
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

void Pipeline::create_streams() {
  device::Backend& backend = flow_.backend;
  streams_created_ = true;
  flow_.norm = backend.create_urgent_stream("norm");
  flow_.down = backend.create_stream("gradients down");
  flow_.up = backend.create_stream("weights up");
  flow_.unpack = backend.create_urgent_stream("weights unpacked");
  if (flow_.open_gate()) {
    flow_.past_readers = backend.create_stream("past readers");
    flow_.scalars = backend.create_urgent_stream("scalars down");
    flow_.device_updates = backend.create_urgent_stream("resident updates");
  }
  uploads_passed_ = backend.create_event();
}

void Pipeline::create_stages() {
  readers_.emplace(flow_.backend);
  gate_.emplace(flow_,
                GateSettings{config_.max_grad_norm, config_.accumulation, config_.loss_scaling},
                scalars_.device(), scalars_.host());
  if (flow_.device_count() > 0) gate_->fetch_overflow_counts();
  whole_state_.emplace(flow_, *resident_, whole_state_scalars());
  weight_in_.emplace(flow_);
  update_.emplace(flow_, static_cast<UpdateListener&>(*this));
  snapshot_.emplace(flow_, *resident_, static_cast<SnapshotListener&>(*this));
  update_->guard_with(*snapshot_);
  gradient_out_.emplace(flow_, scalars_.device(), *update_);
  gradient_out_->set_resident(&*resident_);
  if (flow_.open_gate()) {
    open_gate_.emplace(flow_, *gate_, *readers_, static_cast<OpenGateListener&>(*this));
  }
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
    for (const NativeStream stream : {flow_.norm, flow_.down, flow_.up, flow_.unpack,
                                      flow_.past_readers, flow_.scalars, flow_.device_updates}) {
      if (stream != NativeStream{}) backend.destroy_stream(stream);
    }
    wait_for_work_in_flight();  // tasks that a lost device's last callbacks have posted
  }
  auto_.reset();
  open_gate_.reset();
  whole_state_.reset();
  rings_.clear();
  gradient_out_.reset();
  update_.reset();
  snapshot_.reset();
  weight_in_.reset();
  gate_.reset();
  packings_.clear();
  streamed_.reset();
  resident_.reset();
  readers_.reset();
  destroy_events({});
  if (uploads_passed_.index != device::Event{}.index) backend.destroy_event(uploads_passed_);
  scalars_ = {};
}

}  // namespace outboard::pipeline
