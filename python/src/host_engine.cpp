// SPDX-License-Identifier: Apache-2.0
#include "host_engine.hpp"

#include <unistd.h>

#include <span>
#include <utility>

namespace outboard::python {
namespace {

std::byte* bytes_at(std::uint64_t address) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}
std::span<const float> floats_at(std::uint64_t address, std::uint64_t elems) {
  return {reinterpret_cast<const float*>(static_cast<std::uintptr_t>(address)), elems};
}

}  // namespace

HostEngine::HostEngine(Config config, std::size_t device_memory_bytes)
    : gpu_(sim::Options{.memory_bytes = device_memory_bytes}),
      stream_(gpu_.create_stream("trainer")),
      engine_(std::make_unique<Engine>(gpu_.device(), std::move(config))),
      process_(::getpid()) {}

// The threads of an engine do not live on in a fork: waiting for them there would never end.
HostEngine::~HostEngine() {
  if (process_ == ::getpid()) return;
  (void)engine_.release();  // NOLINT(bugprone-unused-return-value)
  new sim::Gpu(std::move(gpu_));
}

void HostEngine::close() {
  require_own_process("close()");
  const std::lock_guard lock(mutex_);
  if (!engine_) return;
  engine_.reset();
  try {
    gpu_.synchronize();
  } catch (const Error&) {  // a lost device has nothing under way
  }
  for (const Mapped& one : parameters_) {
    gpu_.release(one.weight);
    gpu_.release(one.gradient);
  }
  parameters_.clear();
  gpu_.destroy_stream(stream_);
}

void HostEngine::require_own_process(const char* call) const {
  if (process_ == ::getpid()) return;
  throw Error(ErrorCode::protocol_error,
              std::string(call) + ": the engine belongs to process " + std::to_string(process_) +
                  " and this one was forked off it; make an engine after the fork");
}

std::unique_lock<std::mutex> HostEngine::enter(const char* call) {
  require_own_process(call);
  std::unique_lock lock(mutex_);
  if (engine_) return lock;
  throw Error(ErrorCode::protocol_error,
              std::string(call) + ": the engine is closed; make another one");
}

HostEngine::Mapped& HostEngine::mapped(const char* call, std::uint32_t parameter) {
  if (parameter < parameters_.size()) return parameters_[parameter];
  throw Error(ErrorCode::invalid_argument, std::string(call) + ": parameter " +
                                               std::to_string(parameter) + " of " +
                                               std::to_string(parameters_.size()) + " is unknown");
}

std::uint32_t HostEngine::add_group(const Rule& rule, const GroupOptions& options) {
  const auto lock = enter("add_group()");
  return engine_->add_group(rule, options).value;
}

// The engine compares device addresses, and each weight has one of its own.
const HostEngine::Mapped* HostEngine::find_tied(const std::string& name, const Mapped& one) const {
  if (one.elems == 0) return nullptr;
  for (const Mapped& other : parameters_) {
    if (other.elems == 0 || one.data >= other.data + other.bytes() ||
        other.data >= one.data + one.bytes()) {
      continue;
    }
    if (other.data == one.data && other.elems == one.elems && other.dtype == one.dtype) {
      return &other;
    }
    throw Error(ErrorCode::invalid_argument,
                "add_parameter(): the memory of '" + name +
                    "' overlaps that of another parameter in part; only the very same weight can "
                    "have a second name");
  }
  return nullptr;
}

void HostEngine::set_group(std::uint32_t group, const Rule& rule) {
  const auto lock = enter("set_group()");
  engine_->set_group(GroupId{group}, rule);
}

std::uint32_t HostEngine::add_parameter(const HostParameter& parameter) {
  const auto lock = enter("add_parameter()");
  Mapped one{.elems = parameter.elems, .dtype = parameter.dtype, .data = parameter.data};
  const Mapped* const tied = find_tied(parameter.name, one);
  if (tied != nullptr) {
    one.weight = tied->weight;
  } else if (one.elems > 0) {
    one.weight = gpu_.map_host({bytes_at(parameter.data), one.bytes()});
  }
  try {
    const ParameterId id = engine_->add_parameter(
        {.name = parameter.name,
         .dtype = parameter.dtype,
         .elems = parameter.elems,
         .data = one.weight,
         .group = GroupId{parameter.group},
         .master = parameter.master == 0 ? std::span<const float>{}
                                         : floats_at(parameter.master, parameter.elems)});
    if (tied == nullptr) parameters_.push_back(one);
    return id.value;
  } catch (...) {
    if (tied == nullptr) gpu_.release(one.weight);
    throw;
  }
}

void HostEngine::rebind(std::uint32_t parameter, std::uint64_t data) {
  const auto lock = enter("rebind()");
  Mapped& one = mapped("rebind()", parameter);
  if (one.elems == 0) return;
  engine_->synchronize();
  one.data = data;
  gpu_.remap_host(one.weight, bytes_at(data));
}

void HostEngine::commit() {
  const auto lock = enter("commit()");
  engine_->commit();
}

void HostEngine::give_gradient(std::uint32_t parameter, std::uint64_t gradient) {
  Mapped& one = mapped("gradients_ready()", parameter);
  if (one.elems > 0 && one.gradient_pending) {
    // What it is must not change under the copy that is queued; the engine names the mistake.
    engine_->gradient_ready(ParameterId{parameter}, one.gradient, stream_);
  }
  if (one.elems > 0 && one.gradient == nullptr) {
    one.gradient = gpu_.map_host({bytes_at(gradient), one.bytes()});
  } else if (one.elems > 0) {
    gpu_.remap_host(one.gradient, bytes_at(gradient));
  }
  engine_->gradient_ready(ParameterId{parameter}, one.gradient, stream_);
  one.gradient_pending = true;
}

void HostEngine::gradients_ready(const std::vector<std::uint32_t>& parameters,
                                 const std::vector<std::uint64_t>& gradients) {
  const auto lock = enter("gradients_ready()");
  if (parameters.size() != gradients.size()) {
    throw Error(ErrorCode::invalid_argument,
                "gradients_ready(): " + std::to_string(parameters.size()) + " parameters and " +
                    std::to_string(gradients.size()) + " gradients");
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) give_gradient(parameters[i], gradients[i]);
}

void HostEngine::wait(std::uint32_t parameter) {
  const auto lock = enter("wait()");
  engine_->wait(ParameterId{parameter}, stream_);
  gpu_.synchronize(stream_);
}

void HostEngine::take_gradients_back() {
  for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].gradient_pending) continue;
    parameters_[i].gradient_pending = false;
    engine_->wait_gradient_taken(ParameterId{i}, stream_);
  }
  gpu_.synchronize(stream_);
}

StepReport HostEngine::step() {
  const auto lock = enter("step()");
  StepReport report;
  try {
    report.result = engine_->step();
  } catch (...) {
    try {
      take_gradients_back();
    } catch (const Error&) {  // a lost device reads nothing any more; the first cause is thrown
    }
    throw;
  }
  take_gradients_back();
  if (report.result.non_finite) report.non_finite_name = report.result.non_finite->name;
  return report;
}

void HostEngine::discard() {
  const auto lock = enter("discard()");
  engine_->discard();
  for (Mapped& one : parameters_) one.gradient_pending = false;
  gpu_.synchronize();
}

void HostEngine::synchronize() {
  const auto lock = enter("synchronize()");
  engine_->synchronize();
}

void HostEngine::set_accumulation(std::uint32_t micro_batches) {
  const auto lock = enter("set_accumulation()");
  engine_->set_accumulation(micro_batches);
}

void HostEngine::set_max_grad_norm(double limit) {
  const auto lock = enter("set_max_grad_norm()");
  engine_->set_max_grad_norm(limit);
}

void HostEngine::set_gradient_divisor(double divisor) {
  const auto lock = enter("set_gradient_divisor()");
  engine_->set_gradient_divisor(divisor);
}

double HostEngine::loss_scale() {
  const auto lock = enter("loss_scale()");
  return engine_->loss_scale();
}

void HostEngine::weights_changed(std::uint32_t parameter) {
  const auto lock = enter("weights_changed()");
  if (mapped("weights_changed()", parameter).elems == 0) return;
  engine_->weights_changed(ParameterId{parameter}, stream_);
}

void HostEngine::set_placement(const PlacementChange& change) {
  const auto lock = enter("set_placement()");
  engine_->set_placement(change);
}

std::uint64_t HostEngine::state_digest() {
  const auto lock = enter("state_digest()");
  return engine_->state_digest();
}

std::vector<std::string> HostEngine::state_streams(std::uint32_t parameter) {
  const auto lock = enter("state_streams()");
  const auto names = engine_->state_streams(ParameterId{parameter});
  return {names.begin(), names.end()};
}

std::uint64_t HostEngine::step_count(std::uint32_t parameter) {
  const auto lock = enter("step_count()");
  return engine_->step_count(ParameterId{parameter});
}

void HostEngine::read_state(std::uint32_t parameter, const std::string& stream, std::uint64_t out) {
  const auto lock = enter("read_state()");
  const std::uint64_t elems = mapped("read_state()", parameter).elems;
  engine_->read_state(ParameterId{parameter}, stream,
                      {reinterpret_cast<float*>(bytes_at(out)), elems});
}

void HostEngine::write_state(std::uint32_t parameter, const HostState& state) {
  const auto lock = enter("write_state()");
  const std::uint64_t elems = mapped("write_state()", parameter).elems;
  Engine::StateValues values{.step_count = state.step_count};
  const std::pair<const char*, std::span<const float>*> known[] = {
      {"master", &values.master},
      {"exp_avg", &values.exp_avg},
      {"exp_avg_sq", &values.exp_avg_sq},
      {"momentum_buffer", &values.momentum_buffer},
      {"sum", &values.sum},
      {"ema", &values.ema}};
  for (const auto& [name, address] : state.streams) {
    bool found = false;
    for (const auto& [stream, span] : known) {
      if (name != stream) continue;
      *span = floats_at(address, elems);
      found = true;
    }
    if (!found) {
      throw Error(ErrorCode::invalid_argument,
                  "write_state(): no rule has a stream '" + name + "'");
    }
  }
  engine_->write_state(ParameterId{parameter}, values);
}

SaveReport HostEngine::save(const std::string& folder, const SaveOptions& options) {
  const auto lock = enter("save()");
  return engine_->save(folder, options);
}

LoadReport HostEngine::load(const std::string& folder, const LoadOptions& options) {
  const auto lock = enter("load()");
  return engine_->load(folder, options);
}

StepStats HostEngine::stats() {
  const auto lock = enter("stats()");
  return engine_->stats();
}

MemoryLedger HostEngine::ledger() {
  const auto lock = enter("ledger()");
  return engine_->ledger();
}

std::string HostEngine::describe() {
  const auto lock = enter("describe()");
  return engine_->describe();
}

}  // namespace outboard::python
