// SPDX-License-Identifier: Apache-2.0
#include "host_engine.hpp"

#include <unistd.h>

#include <exception>
#include <span>
#include <utility>

namespace outboard::python {
namespace {

constexpr NativeStream kCaller{0};

void* pointer_to(std::uint64_t address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}
std::span<const float> floats_at(std::uint64_t address, std::uint64_t elems) {
  return {static_cast<const float*>(pointer_to(address)), elems};
}

}  // namespace

HostEngine::HostEngine(Config config)
    : engine_(std::make_unique<Engine>(Device::host(), std::move(config))), process_(::getpid()) {}

// The threads of an engine do not live on in a fork: waiting for them there would never end.
HostEngine::~HostEngine() {
  if (process_ == ::getpid()) return;
  (void)engine_.release();  // NOLINT(bugprone-unused-return-value)
}

void HostEngine::close() {
  const Turn turn(*this, "close()", true);
  if (!engine_) return;
  engine_.reset();
  parameters_.clear();
}

void HostEngine::require_own_process(const char* call) const {
  if (process_ == ::getpid()) return;
  throw Error(ErrorCode::protocol_error,
              std::string(call) + ": the engine belongs to process " + std::to_string(process_) +
                  " and this one was forked off it; make an engine after the fork");
}

// Another thread may end its turn meanwhile; only this one could have set its own id.
void HostEngine::require_other_thread(const char* call) const {
  if (owner_.load(std::memory_order_relaxed) != std::this_thread::get_id()) return;
  throw Error(ErrorCode::protocol_error,
              std::string(call) +
                  ": called by the log of a call of the same engine, which has to end "
                  "first; keep the line and call later");
}

HostEngine::Turn::Turn(HostEngine& engine, const char* call, bool closed_is_fine)
    : engine_(engine), lock_(engine.mutex_, std::defer_lock) {
  engine.require_own_process(call);
  engine.require_other_thread(call);
  lock_.lock();
  if (!engine.engine_ && !closed_is_fine) {
    throw Error(ErrorCode::protocol_error,
                std::string(call) + ": the engine is closed; make another one");
  }
  engine.owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

HostEngine::Parameter& HostEngine::parameter_at(const char* call, std::uint32_t parameter) {
  if (parameter < parameters_.size()) return parameters_[parameter];
  throw Error(ErrorCode::invalid_argument, std::string(call) + ": parameter " +
                                               std::to_string(parameter) + " of " +
                                               std::to_string(parameters_.size()) + " is unknown");
}

std::uint32_t HostEngine::add_group(const Rule& rule, const GroupOptions& options) {
  const auto lock = enter("add_group()");
  return engine_->add_group(rule, options).value;
}

void HostEngine::set_group(std::uint32_t group, const Rule& rule) {
  const auto lock = enter("set_group()");
  engine_->set_group(GroupId{group}, rule);
}

std::uint32_t HostEngine::add_parameter(const HostParameter& parameter) {
  const auto lock = enter("add_parameter()");
  const ParameterId id = engine_->add_parameter(
      {.name = parameter.name,
       .dtype = parameter.dtype,
       .elems = parameter.elems,
       .data = pointer_to(parameter.data),
       .group = GroupId{parameter.group},
       .master = parameter.master == 0 ? std::span<const float>{}
                                       : floats_at(parameter.master, parameter.elems)});
  if (id.value == parameters_.size()) parameters_.push_back({.elems = parameter.elems});
  return id.value;
}

void HostEngine::rebind(std::uint32_t parameter, std::uint64_t data) {
  const auto lock = enter("rebind()");
  engine_->rebind(ParameterId{parameter}, pointer_to(data));
}

void HostEngine::commit() {
  const auto lock = enter("commit()");
  engine_->commit();
}

void HostEngine::gradients_ready(const std::vector<std::uint32_t>& parameters,
                                 const std::vector<std::uint64_t>& gradients) {
  const auto lock = enter("gradients_ready()");
  if (parameters.size() != gradients.size()) {
    throw Error(ErrorCode::invalid_argument,
                "gradients_ready(): " + std::to_string(parameters.size()) + " parameters and " +
                    std::to_string(gradients.size()) + " gradients");
  }
  std::size_t given = 0;
  try {
    for (; given < parameters.size(); ++given) {
      Parameter& parameter = parameter_at("gradients_ready()", parameters[given]);
      engine_->gradient_ready(ParameterId{parameters[given]}, pointer_to(gradients[given]),
                              kCaller);
      parameter.gradient_pending = true;
    }
  } catch (...) {
    if (given > 0) drop_gradients();
    throw;
  }
}

// The first cause is the one to be thrown.
void HostEngine::drop_gradients() noexcept {
  try {
    engine_->discard();
    take_gradients_back();
  } catch (const std::exception&) {
  }
}

void HostEngine::wait(std::uint32_t parameter) {
  const auto lock = enter("wait()");
  engine_->wait(ParameterId{parameter}, kCaller);
}

void HostEngine::take_gradients_back() {
  for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].gradient_pending) continue;
    parameters_[i].gradient_pending = false;
    engine_->wait_gradient_taken(ParameterId{i}, kCaller);
  }
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
  take_gradients_back();
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
  engine_->weights_changed(ParameterId{parameter}, kCaller);
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
  const std::uint64_t elems = parameter_at("read_state()", parameter).elems;
  engine_->read_state(ParameterId{parameter}, stream,
                      {static_cast<float*>(pointer_to(out)), elems});
}

void HostEngine::write_state(std::uint32_t parameter, const HostState& state) {
  const auto lock = enter("write_state()");
  const std::uint64_t elems = parameter_at("write_state()", parameter).elems;
  std::vector<Engine::StateSource> sources;
  for (const auto& [name, address] : state.streams) {
    sources.push_back({name, floats_at(address, elems)});
  }
  engine_->write_state(ParameterId{parameter}, sources, state.step_count);
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
