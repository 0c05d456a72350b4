// SPDX-License-Identifier: Apache-2.0
/// What is behind Engine: checks what it is given, then hands over to the pipeline. Owns
/// everything, in the order in which it depends on each other.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "core/show_number.hpp"
#include "engine/async_save.hpp"
#include "engine/checkpoints.hpp"
#include "engine/host_setup.hpp"
#include "engine/parameter_checks.hpp"
#include "engine/parameter_table.hpp"
#include "engine/state_streams.hpp"
#include "exec/executor.hpp"
#include "optim/describe.hpp"
#include "optim/group.hpp"
#include "optim/state_layout.hpp"
#include "outboard/engine.hpp"
#include "outboard/error.hpp"
#include "pipeline/step.hpp"
#include "simd/target.hpp"
#include "topology/machine.hpp"

namespace outboard {

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
    if (config_.host.threads_per_node == 0) machine_ = topology::within_quota(std::move(machine_));
    const std::uint32_t reserve =
        config_.host.reserve_cores.value_or(engine::default_reserve(machine_, config_.schedule));
    threads_ = topology::choose_threads(machine_, config_.host.threads_per_node, reserve);
  }

  ~Impl() {
    if (!async_) return;
    async_->finish();
    try {
      tell_saved();
    } catch (const std::exception&) {  // no memory for the text
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  GroupId add_rule(const Rule& rule, const GroupOptions& options) {
    require_between_steps("add_group()");
    engine::validate(rule);
    options.validate();
    groups_.push_back({rule, options});
    return GroupId{static_cast<std::uint32_t>(groups_.size() - 1)};
  }

  ParameterId add_parameter(const ParameterSpec& spec) {
    require_between_steps("add_parameter() of '" + spec.name + "'");
    return parameters_.add(spec, groups_.size(), *device_.backend());
  }

  void commit() {
    if (lost_) throw_lost();
    if (pipeline_) return commit_new();
    device::Backend& backend = *device_.backend();
    auto executor = engine::make_executor(backend, machine_, threads_.threads_per_node);
    if (core::SpanRecorder* recorder = backend.recorder()) executor->record_to(*recorder);
    pipeline_ = std::make_unique<pipeline::Pipeline>(
        backend, *executor, machine_, config_,
        pipeline::Pipeline::Model{.groups = groups_, .parameters = parameters_.inputs()});
    executor_ = std::move(executor);
    async_.emplace(device_.backend());
    committed();
    log_start();
  }

  void set_accumulation(std::uint32_t micro_batches) {
    pipeline::Pipeline& pipeline = running("set_accumulation()");
    if (micro_batches == 0) {
      throw Error(ErrorCode::invalid_argument, "set_accumulation(): 0 micro-batches; at least 1");
    }
    pipeline.set_accumulation(micro_batches);
    config_.accumulation = micro_batches;
  }

  void set_max_grad_norm(double limit) {
    Config changed = config_;
    changed.max_grad_norm = limit;
    changed.validate();
    running("set_max_grad_norm()").set_max_grad_norm(limit);
    config_.max_grad_norm = limit;
  }

  void set_gradient_divisor(double divisor) {
    pipeline::Pipeline& pipeline = running("set_gradient_divisor()");
    if (!(divisor >= 0x1p-100 && divisor <= 0x1p100)) {
      throw Error(ErrorCode::invalid_argument,
                  "set_gradient_divisor(): " + core::show_number(divisor) +
                      "; it must be a number from 2^-100 to 2^100");
    }
    pipeline.set_gradient_divisor(divisor);
  }

  /// An engine that load() makes anew begins with it.
  void set_placement(const PlacementChange& change) {
    without_save("set_placement()").set_placement(change);
    config_.placement = change.placement;
    config_.device_fraction = change.device_fraction;
    config_.device_budget_bytes = change.device_budget_bytes.value_or(config_.device_budget_bytes);
    config_.keep_host_room = true;  // it has it, or could not have moved
  }

  /// What is committed, as a checkpoint sees it.
  [[nodiscard]] engine::Model model() const {
    engine::Model model = engine::model_of(groups_, config_);
    for (const pipeline::ParameterInput& input : parameters_.inputs().first(committed_)) {
      model.parameters.push_back({{input.name}, input.dtype, input.elems, input.group});
    }
    for (const auto& [name, index] : parameters_.names()) {
      if (index >= committed_) continue;
      auto& names = model.parameters[index].names;
      if (name != names.front()) names.push_back(name);
    }
    return model;
  }

  SaveReport save(const std::string& folder, const SaveOptions& options) {
    pipeline::Pipeline& pipeline = without_save("save()");
    SaveReport report = engine::save(ckpt::posix_file_system(), folder, model(), pipeline, options);
    log_saved("save()", report);
    return report;
  }

  SaveTicket save_async(const std::string& folder, const SaveOptions& options) {
    pipeline::Pipeline& pipeline = without_save("save_async()");
    pipeline.require_no_gradient("save_async()");
    return async_->start(
        ckpt::posix_file_system(), pipeline,
        {folder, engine::request_of(model(), pipeline, options), config_.snapshot_bytes});
  }

  StepResult step() {
    pipeline::Pipeline& pipeline = running("step()");
    tell_saved();
    async_->throw_untold();
    return pipeline.step(groups_);
  }

  LoadReport load(const std::string& folder, const LoadOptions& options) {
    if (!lost_) {
      // Before anything is read.
      pipeline::Pipeline& pipeline = without_save("load()");
      if (!pipeline.broken()) pipeline.require_no_gradient("load()");
    }
    const engine::LoadTarget target{model(), groups_, [this](bool complete) -> pipeline::Pipeline& {
                                      if (lost_ || pipeline_->broken()) remake(complete);
                                      pipeline_->prepare_state_change("load()");
                                      return *pipeline_;
                                    }};
    LoadReport report = engine::load(ckpt::posix_file_system(), folder, target, options);
    if (config_.log) {
      log_lines(LogLevel::info, "load(): '" + report.folder + "', saved after step " +
                                    std::to_string(report.steps));
      for (const auto& one : engine::misfits(report)) log_lines(LogLevel::warning, one);
    }
    return report;
  }

  void set_rule(GroupId group, const Rule& rule) {
    if (group.value >= groups_.size()) {
      throw Error(ErrorCode::invalid_argument, "set_group(): group " + std::to_string(group.value) +
                                                   " of " + std::to_string(groups_.size()) +
                                                   " is unknown; use what add_group() returned");
    }
    if (pipeline_) pipeline_->require_between_steps("set_group()");
    engine::validate(rule);
    optim::Group& now = groups_[group.value];
    if (const std::string why = optim::refusal_to_replace(now.rule, rule); !why.empty()) {
      throw Error(ErrorCode::invalid_config,
                  "set_group(): group " + std::to_string(group.value) + " " + why);
    }
    const bool only_rate = optim::same_but_for_lr(now.rule, rule);
    now.rule = rule;
    if (!only_rate && pipeline_ && config_.log) log_change(group.value);
  }

  /// The pipeline, for a call that no save may run beside.
  pipeline::Pipeline& without_save(const char* call) {
    pipeline::Pipeline& pipeline = running(call);
    async_->finish();
    tell_saved();
    return pipeline;
  }
  /// The pipeline, for a call that needs commit().
  pipeline::Pipeline& running(const char* call) const {
    if (lost_) throw_lost();
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

  void finish_for_caller(NativeStream stream) { device_.backend()->finish_for_caller(stream); }

  void rebind(ParameterId parameter, void* data) {
    pipeline::Pipeline& pipeline = running("rebind()", parameter);
    parameters_.check_move(parameter.value, data, *device_.backend());
    pipeline.rebind(parameter, data);
    parameters_.move(parameter.value, data);
  }

  void write_state(ParameterId parameter, std::span<const StateSource> sources,
                   std::optional<std::uint64_t> step_count) {
    (void)running("write_state()", parameter);
    const std::vector<std::size_t> streams = engine::stream_indices(owner(parameter), sources);
    if (step_count > kMostSteps) {
      throw Error(ErrorCode::invalid_argument, "write_state(): a step count of " +
                                                   std::to_string(*step_count) +
                                                   "; at most 2^53 can be counted");
    }
    pipeline::Pipeline& pipeline = without_save("write_state()");
    pipeline.prepare_state_change("write_state()");
    for (std::size_t i = 0; i < streams.size(); ++i) {
      auto rest = std::as_bytes(sources[i].values);
      pipeline.write_pieces(parameter, streams[i], [&](std::span<std::byte> out) {
        std::ranges::copy(rest.first(out.size()), out.begin());
        rest = rest.subspan(out.size());
      });
    }
    pipeline::RestoredState state;
    state.step_counts.resize(committed_);
    state.step_counts[parameter.value] = step_count.value_or(pipeline.step_count(parameter));
    state.scalars = pipeline.saved_scalars();
    pipeline.finish_load(state, groups_);
  }

  [[nodiscard]] std::span<const optim::Group> groups() const noexcept { return groups_; }

  [[nodiscard]] std::vector<std::string_view> state_streams(ParameterId parameter) const {
    return optim::stream_names(owner(parameter).group);
  }

  [[nodiscard]] pipeline::StateRead state_read(ParameterId parameter, std::string_view stream,
                                               std::span<float> out) const {
    return {engine::stream_index("read_state()", owner(parameter), stream, out.size()), out};
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
  static constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 53;

  [[nodiscard]] engine::StreamOwner owner(ParameterId parameter) const {
    const pipeline::ParameterInput& input = parameters_[parameter.value];
    return {input, groups_[input.group]};
  }
  [[noreturn]] void throw_lost() const {
    throw Error(ErrorCode::poisoned,
                "the engine is poisoned and load() could not make it anew; load() again or destroy "
                "it. Cause: " +
                    std::string(lost_->what()));
  }

  /// In place of a pipeline whose state may be half new. Masters are zero until they are loaded.
  void remake(bool complete) {
    if (!complete) {
      throw Error(ErrorCode::poisoned,
                  "load(): the engine is poisoned and the checkpoint lacks some of its parameters, "
                  "whose state would stay half new; load one that has them all");
    }
    std::uint64_t most = 0;
    for (const pipeline::ParameterInput& input : parameters_.inputs())
      most = std::max(most, input.elems);
    // Of zeroed memory that nobody writes the system makes no pages.
    const std::unique_ptr<void, void (*)(void*)> zeros(std::calloc(most + 1, sizeof(float)),
                                                       &std::free);
    if (!zeros) throw Error(ErrorCode::out_of_memory, "load(): no address space for masters");
    const auto there = parameters_.inputs().first(committed_);
    std::vector<pipeline::ParameterInput> inputs(there.begin(), there.end());
    for (pipeline::ParameterInput& input : inputs) {
      input.master = {static_cast<const float*>(zeros.get()), input.elems};
    }
    lost_.emplace(ErrorCode::poisoned, "it was interrupted");
    pipeline_.reset();
    try {
      pipeline_ = std::make_unique<pipeline::Pipeline>(
          *device_.backend(), *executor_, machine_, config_,
          pipeline::Pipeline::Model{.groups = groups_, .parameters = inputs});
    } catch (const Error& failure) {
      lost_ = failure;
      throw;
    }
    pipeline_->take_the_place();
    lost_.reset();
  }

  void log_saved(const char* call, const SaveReport& report) const {
    if (!config_.log) return;
    const std::string who = std::string(call) + ": ";
    log_lines(LogLevel::info,
              who + std::to_string(report.bytes) + " bytes in '" + report.folder + "'");
    if (!report.warning.empty()) {
      log_lines(LogLevel::warning, who + "could not be removed: " + report.warning);
    }
  }

  /// Of a save that ended since the last call.
  void tell_saved() {
    const auto news = async_->news();
    if (!news) return;
    if (!news->failure) return log_saved("save_async()", news->report);
    if (config_.log)
      log_lines(LogLevel::error, std::string("save_async(): ") + news->failure->what());
  }

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
    (void)without_save("commit()");
    const auto added = parameters_.inputs().subspan(committed_);
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
    parameters_.forget_masters();
    committed_ = parameters_.size();
    committed_groups_ = static_cast<std::uint32_t>(groups_.size());
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
    log_lines(LogLevel::warning, engine::kernels_problem(*device_.backend()));
  }

  Device device_;
  Config config_;
  topology::Machine machine_;
  topology::ThreadChoice threads_;
  std::vector<optim::Group> groups_;
  engine::ParameterTable parameters_;
  std::size_t committed_ = 0;  ///< of `parameters_`, from the first on
  std::uint32_t committed_groups_ = 0;
  std::set<std::uint32_t> changed_groups_;  ///< whose change after commit() has been logged
  std::optional<Error> lost_;  ///< why load() could not make the pipeline anew; there is none then
  std::unique_ptr<exec::Executor> executor_;
  std::unique_ptr<pipeline::Pipeline> pipeline_;
  std::optional<engine::AsyncSave> async_;  ///< from the first commit() on
};

}  // namespace outboard
