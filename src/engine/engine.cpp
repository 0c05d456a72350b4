// SPDX-License-Identifier: Apache-2.0
// The public engine: checks what it is given, then hands over to the pipeline. Owns everything, in
// the order in which it depends on each other.
#include "outboard/engine.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "exec/executor.hpp"
#include "optim/describe.hpp"
#include "optim/group.hpp"
#include "optim/state_layout.hpp"
#include "outboard/error.hpp"
#include "pipeline/step.hpp"
#include "simd/target.hpp"
#include "topology/machine.hpp"

namespace outboard {
namespace {

std::uint32_t default_reserve(const topology::Machine& machine, Schedule schedule) {
  const bool overlaps = schedule == Schedule::exact || schedule == Schedule::open;
  return overlaps ? topology::default_reserve(machine) : 0;
}

void validate(const Rule& rule) {
  std::visit([](const auto& kind) { kind.validate(); }, rule);
}

std::uint64_t bytes_of(std::uint64_t elems, DType dtype) {
  return elems * dtype_bytes(dtype);
}

std::unique_ptr<exec::Executor> make_executor(device::Backend& backend,
                                              const topology::Machine& machine,
                                              const std::vector<std::uint32_t>& threads) {
  core::VirtualLoop* loop = backend.virtual_loop();
  if (loop == nullptr) return exec::make_default_executor(machine, threads);
  std::vector<double> rates;
  for (std::uint32_t node = 0; node < threads.size(); ++node) {
    rates.push_back(backend.host_elems_per_s(node));
  }
  return exec::make_virtual_executor(*loop, threads, rates);
}

[[noreturn]] void refuse(const std::string& name, const std::string& what,
                         ErrorCode code = ErrorCode::invalid_argument) {
  throw Error(code, "add_parameter(): parameter '" + name + "' " + what);
}

}  // namespace

class Engine::Impl {
 public:
  Impl(Device device, Config config) : device_(std::move(device)), config_(std::move(config)) {
    config_.validate();
    if (!device_.backend()) {
      throw Error(ErrorCode::invalid_argument,
                  "Engine: the device handle is empty; make one with "
                  "Device::sim() and do not move from it");
    }
    machine_ = config_.host.synthetic_topology.empty()
                   ? topology::discover()
                   : topology::synthetic(config_.host.synthetic_topology);
    const std::uint32_t reserve =
        config_.host.reserve_cores.value_or(default_reserve(machine_, config_.schedule));
    threads_ = topology::choose_threads(machine_, config_.host.threads_per_node, reserve);
  }

  GroupId add_rule(const Rule& rule, const GroupOptions& options) {
    require_between_steps("add_group()");
    validate(rule);
    options.validate();
    groups_.push_back({rule, options});
    return GroupId{static_cast<std::uint32_t>(groups_.size() - 1)};
  }

  ParameterId add_parameter(const ParameterSpec& spec) {
    require_between_steps("add_parameter() of '" + spec.name + "'");
    check(spec);
    const auto tied = find_tied(spec);
    names_.insert(spec.name);
    if (tied) return *tied;
    pipeline::ParameterInput input;
    input.name = spec.name;
    input.dtype = spec.dtype;
    input.weight = spec.data;
    input.elems = spec.elems;
    input.group = spec.group.value;
    input.master = spec.master;
    const auto index = static_cast<std::uint32_t>(parameters_.size());
    if (spec.elems > 0) by_address_[reinterpret_cast<std::uintptr_t>(spec.data)] = index;
    parameters_.push_back(std::move(input));
    return ParameterId{index};
  }

  void commit() {
    if (pipeline_) return commit_new();
    device::Backend& backend = *device_.backend();
    auto executor = make_executor(backend, machine_, threads_.threads_per_node);
    if (core::SpanRecorder* recorder = backend.recorder()) executor->record_to(*recorder);
    pipeline_ = std::make_unique<pipeline::Pipeline>(
        backend, *executor, machine_, config_,
        pipeline::Pipeline::Model{.groups = groups_, .parameters = parameters_});
    executor_ = std::move(executor);
    committed();
    log_start();
  }

  void set_rule(GroupId group, const Rule& rule) {
    if (group.value >= groups_.size()) {
      throw Error(ErrorCode::invalid_argument, "set_group(): group " + std::to_string(group.value) +
                                                   " of " + std::to_string(groups_.size()) +
                                                   " is unknown; use what add_group() returned");
    }
    if (pipeline_) pipeline_->require_between_steps("set_group()");
    validate(rule);
    optim::Group& now = groups_[group.value];
    if (const std::string why = optim::refusal_to_replace(now.rule, rule); !why.empty()) {
      throw Error(ErrorCode::invalid_config,
                  "set_group(): group " + std::to_string(group.value) + " " + why);
    }
    const bool only_rate = optim::same_but_for_lr(now.rule, rule);
    now.rule = rule;
    if (!only_rate && pipeline_ && config_.log) log_change(group.value);
  }

  /// The pipeline, for a call that needs commit().
  pipeline::Pipeline& running(const char* call) const {
    if (!pipeline_) {
      throw Error(ErrorCode::protocol_error,
                  std::string(call) + " before commit(); register all parameters, then commit()");
    }
    return *pipeline_;
  }
  pipeline::Pipeline& running(const char* call, ParameterId parameter) const {
    pipeline::Pipeline& pipeline = running(call);
    if (parameter.value >= parameters_.size()) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(call) + ": parameter id " + std::to_string(parameter.value) + " of " +
                      std::to_string(parameters_.size()) +
                      " is unknown; use what add_parameter() returned");
    }
    if (parameter.value >= committed_) {
      throw Error(ErrorCode::protocol_error,
                  std::string(call) + ": parameter '" + parameters_[parameter.value].name +
                      "' is registered but not committed; call commit() first");
    }
    return pipeline;
  }

  [[nodiscard]] std::span<const optim::Group> groups() const noexcept { return groups_; }

  [[nodiscard]] std::vector<std::string_view> state_streams(ParameterId parameter) const {
    return optim::stream_names(groups_[parameters_[parameter.value].group]);
  }

  /// Which of the parameter's streams goes where. @throws if it has none of that name.
  [[nodiscard]] pipeline::StateRead state_read(ParameterId parameter, std::string_view stream,
                                               std::span<float> out) const {
    const pipeline::ParameterInput& input = parameters_[parameter.value];
    const std::string who = "read_state(): parameter '" + input.name + "' ";
    const auto names = state_streams(parameter);
    const auto found = std::ranges::find(names, stream);
    if (found == names.end()) {
      std::string all;
      for (const std::string_view name : names) {
        all += (all.empty() ? "" : ", ") + std::string(name);
      }
      throw Error(ErrorCode::invalid_argument,
                  who + "has no stream '" + std::string(stream) + "'; it is updated by " +
                      std::string(rule_name(groups_[input.group].rule)) + " and has " + all);
    }
    if (out.size() != input.elems) {
      throw Error(ErrorCode::invalid_argument,
                  who + "has " + std::to_string(input.elems) + " elements and a span has " +
                      std::to_string(out.size()) + "; give spans of that size, or empty ones");
    }
    return {static_cast<std::size_t>(found - names.begin()), out};
  }

  [[nodiscard]] std::string describe() const {
    std::string text = "device: " + std::string(device_.name()) + "\n" + machine_.notes;
    if (!text.empty() && text.back() != '\n') text += '\n';
    text += "threads: " + threads_.why + "\n";
    text += "simd: " + std::string(simd::active_target()) + "\n";
    for (std::uint32_t i = 0; i < groups_.size(); ++i) text += describe_group(i) + "\n";
    if (pipeline_) text += pipeline_->describe();
    return text;
  }

 private:
  [[nodiscard]] std::string describe_group(std::uint32_t group) const {
    return "optimizer, group " + std::to_string(group) + ": " + optim::describe(groups_[group]);
  }

  /// Once for each group: what is scheduled changes with every step.
  void log_change(std::uint32_t group) {
    if (!changed_groups_.insert(group).second) return;
    log_lines(LogLevel::info,
              describe_group(group) + ", from the next step on; describe() tells of later changes");
  }

  void require_between_steps(const std::string& call) const {
    if (pipeline_) pipeline_->require_no_gradient(call);
  }

  /// Takes in what was added since the last commit().
  void commit_new() {
    if (committed_ == parameters_.size()) return;
    const auto added = std::span(parameters_).subspan(committed_);
    pipeline_->grow(machine_, {.groups = groups_, .parameters = added});
    const std::string what = added.size() == 1
                                 ? "parameter '" + added.front().name + "'"
                                 : std::to_string(added.size()) + " parameters, '" +
                                       added.front().name + "' to '" + added.back().name + "'";
    const std::uint32_t first_group = committed_groups_;
    committed();
    if (!config_.log) return;
    std::string text = "commit(): " + what + " more\n";
    for (std::uint32_t i = first_group; i < groups_.size(); ++i) text += describe_group(i) + "\n";
    log_lines(LogLevel::info, text + pipeline_->describe());
  }

  void committed() {
    for (pipeline::ParameterInput& input : parameters_) input.master = {};
    committed_ = parameters_.size();
    committed_groups_ = static_cast<std::uint32_t>(groups_.size());
  }

  void check(const ParameterSpec& spec) const {
    if (spec.name.empty()) refuse(spec.name, "needs a name");
    if (names_.contains(spec.name)) refuse(spec.name, "is registered already");
    if (spec.dtype != DType::f16 && spec.dtype != DType::bf16 && spec.dtype != DType::f32) {
      refuse(spec.name,
             "has dtype " + std::to_string(static_cast<unsigned>(spec.dtype)) +
                 "; there are DType::f16, DType::bf16 and DType::f32",
             ErrorCode::unsupported);
    }
    if (spec.group.value >= groups_.size()) {
      refuse(spec.name, "names group " + std::to_string(spec.group.value) + " of " +
                            std::to_string(groups_.size()) + "; use what add_group() returned");
    }
    if (!spec.master.empty() && spec.master.size() != spec.elems) {
      refuse(spec.name, "has " + std::to_string(spec.elems) + " `elems` and a `master` of " +
                            std::to_string(spec.master.size()));
    }
    if (spec.elems == 0) return;
    if (spec.data == nullptr) refuse(spec.name, "has no `data`");
    if (spec.elems > SIZE_MAX / 16) refuse(spec.name, "has more `elems` than memory can hold");
    const std::size_t size = dtype_bytes(spec.dtype);
    if (reinterpret_cast<std::uintptr_t>(spec.data) % size != 0) {
      refuse(spec.name, "has `data` that is not aligned to " + std::to_string(size) + " bytes");
    }
    try {
      device_.backend()->check_range(spec.data, spec.elems * size);
    } catch (const Error& failure) {
      refuse(spec.name, std::string("has wrong `data`: ") + failure.what(), failure.code());
    }
  }

  /// A second name for the same weight; a partial overlap is refused.
  [[nodiscard]] std::optional<ParameterId> find_tied(const ParameterSpec& spec) const {
    if (spec.elems == 0) return std::nullopt;
    const auto begin = reinterpret_cast<std::uintptr_t>(spec.data);
    auto next = by_address_.lower_bound(begin);
    if (next != by_address_.end() && next->first < begin + bytes_of(spec.elems, spec.dtype)) {
      const pipeline::ParameterInput& other = parameters_[next->second];
      if (next->first != begin || other.elems != spec.elems || other.dtype != spec.dtype) {
        refuse_overlap(spec, other);
      }
      require_same_settings(spec, other);
      return ParameterId{next->second};
    }
    if (next == by_address_.begin()) return std::nullopt;
    --next;
    const pipeline::ParameterInput& other = parameters_[next->second];
    if (begin < next->first + bytes_of(other.elems, other.dtype)) refuse_overlap(spec, other);
    return std::nullopt;
  }

  [[noreturn]] static void refuse_overlap(const ParameterSpec& spec,
                                          const pipeline::ParameterInput& other) {
    refuse(spec.name, "overlaps '" + other.name +
                          "' in part; only the very same weight can have a second name");
  }
  static void require_same_settings(const ParameterSpec& spec,
                                    const pipeline::ParameterInput& other) {
    if (spec.group.value != other.group) {
      refuse(spec.name, "is the weight of '" + other.name +
                            "' but names another group; a weight is updated once, by one group");
    }
    if (!spec.master.empty()) {
      refuse(spec.name, "is the weight of '" + other.name +
                            "' and brings a `master` of its own; give it with the first name");
    }
  }

  void log_lines(LogLevel level, const std::string& text) const {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      try {
        config_.log(level, line);
      } catch (...) {  // a sink that fails must not fail the commit, which is done
      }
    }
  }

  void log_start() const {
    if (!config_.log) return;
    log_lines(LogLevel::info, describe());
    log_lines(LogLevel::warning, executor_->notes());
    log_lines(LogLevel::warning, simd::environment_problem());
  }

  Device device_;
  Config config_;
  topology::Machine machine_;
  topology::ThreadChoice threads_;
  std::vector<optim::Group> groups_;
  std::vector<pipeline::ParameterInput> parameters_;
  std::size_t committed_ = 0;  ///< of `parameters_`, from the first on
  std::uint32_t committed_groups_ = 0;
  std::set<std::uint32_t> changed_groups_;  ///< whose change after commit() has been logged
  std::set<std::string> names_;             ///< second names of tied weights too
  std::map<std::uintptr_t, std::uint32_t> by_address_;
  std::unique_ptr<exec::Executor> executor_;
  std::unique_ptr<pipeline::Pipeline> pipeline_;
};

Engine::Engine(Device device, Config config)
    : impl_(std::make_unique<Impl>(std::move(device), std::move(config))) {}
Engine::~Engine() = default;

GroupId Engine::add_rule(const Rule& rule, const GroupOptions& options) {
  return impl_->add_rule(rule, options);
}
ParameterId Engine::add_parameter(const ParameterSpec& spec) {
  return impl_->add_parameter(spec);
}
void Engine::commit() {
  impl_->commit();
}

void Engine::set_rule(GroupId group, const Rule& rule) {
  impl_->set_rule(group, rule);
}
void Engine::wait(ParameterId parameter, NativeStream stream) {
  impl_->running("wait()", parameter).wait(parameter, stream);
}
void Engine::gradient_ready(ParameterId parameter, const void* gradient, NativeStream stream) {
  impl_->running("gradient_ready()", parameter)
      .gradient_ready(parameter, gradient, stream, impl_->groups());
}
void Engine::wait_gradient_taken(ParameterId parameter, NativeStream stream) {
  impl_->running("wait_gradient_taken()", parameter).wait_gradient_taken(parameter, stream);
}
StepResult Engine::step() {
  return impl_->running("step()").step(impl_->groups());
}
void Engine::set_accumulation(std::uint32_t micro_batches) {
  pipeline::Pipeline& pipeline = impl_->running("set_accumulation()");
  if (micro_batches == 0) {
    throw Error(ErrorCode::invalid_argument, "set_accumulation(): 0 micro-batches; at least 1");
  }
  pipeline.set_accumulation(micro_batches);
}
void Engine::discard() {
  impl_->running("discard()").discard();
}
double Engine::loss_scale() const {
  return impl_->running("loss_scale()").loss_scale();
}

void Engine::weights_changed(ParameterId parameter, NativeStream stream) {
  impl_->running("weights_changed()", parameter).weights_changed(parameter, stream);
}
void Engine::set_placement(const PlacementChange& change) {
  impl_->running("set_placement()").set_placement(change);
}
void Engine::synchronize() {
  impl_->running("synchronize()").synchronize();
}
std::uint64_t Engine::state_digest() {
  return impl_->running("state_digest()").state_digest();
}
void Engine::read_state(ParameterId parameter, const StateView& out) {
  pipeline::Pipeline& pipeline = impl_->running("read_state()", parameter);
  const std::pair<std::string_view, std::span<float>> wanted[] = {
      {"master", out.master},
      {"exp_avg", out.exp_avg},
      {"exp_avg_sq", out.exp_avg_sq},
      {"momentum_buffer", out.momentum_buffer},
      {"sum", out.sum},
      {"ema", out.ema}};
  std::vector<pipeline::StateRead> reads;
  for (const auto& [name, span] : wanted) {
    if (!span.empty()) reads.push_back(impl_->state_read(parameter, name, span));
  }
  pipeline.read_state(parameter, reads);
}
void Engine::read_state(ParameterId parameter, std::string_view stream, std::span<float> out) {
  pipeline::Pipeline& pipeline = impl_->running("read_state()", parameter);
  const pipeline::StateRead read = impl_->state_read(parameter, stream, out);
  pipeline.read_state(parameter, {&read, 1});
}
std::vector<std::string_view> Engine::state_streams(ParameterId parameter) const {
  impl_->running("state_streams()", parameter);
  return impl_->state_streams(parameter);
}
std::uint64_t Engine::step_count(ParameterId parameter) const {
  return impl_->running("step_count()", parameter).step_count(parameter);
}
StepStats Engine::stats() const {
  return impl_->running("stats()").stats();
}
MemoryLedger Engine::ledger() const {
  return impl_->running("ledger()").ledger();
}
std::string Engine::describe() const {
  return impl_->describe();
}

}  // namespace outboard
