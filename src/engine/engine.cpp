// SPDX-License-Identifier: Apache-2.0
// The public engine: each call goes to what is behind it.
#include "engine/engine_impl.hpp"

namespace outboard {

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
  impl_->finish_for_caller(stream);
}
void Engine::gradient_ready(ParameterId parameter, const void* gradient, NativeStream stream) {
  impl_->running("gradient_ready()", parameter)
      .gradient_ready(parameter, gradient, stream, impl_->groups());
}
void Engine::wait_gradient_taken(ParameterId parameter, NativeStream stream) {
  impl_->running("wait_gradient_taken()", parameter).wait_gradient_taken(parameter, stream);
  impl_->finish_for_caller(stream);
}
StepResult Engine::step() {
  return impl_->step();
}
void Engine::set_accumulation(std::uint32_t micro_batches) {
  impl_->set_accumulation(micro_batches);
}
void Engine::discard() {
  impl_->running("discard()").discard();
}
double Engine::loss_scale() const {
  return impl_->running("loss_scale()").loss_scale();
}
void Engine::set_max_grad_norm(double max_grad_norm) {
  impl_->set_max_grad_norm(max_grad_norm);
}
void Engine::set_gradient_divisor(double divisor) {
  impl_->set_gradient_divisor(divisor);
}

void Engine::weights_changed(ParameterId parameter, NativeStream stream) {
  (void)impl_->running("weights_changed()", parameter);
  impl_->without_save("weights_changed()").weights_changed(parameter, stream);
}
void Engine::rebind(ParameterId parameter, void* data) {
  impl_->rebind(parameter, data);
}
void Engine::write_state(ParameterId parameter, std::span<const StateSource> sources,
                         std::optional<std::uint64_t> step_count) {
  impl_->write_state(parameter, sources, step_count);
}
void Engine::set_placement(const PlacementChange& change) {
  impl_->set_placement(change);
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
SaveReport Engine::save(const std::string& folder, const SaveOptions& options) {
  return impl_->save(folder, options);
}
SaveTicket Engine::save_async(const std::string& folder, const SaveOptions& options) {
  return impl_->save_async(folder, options);
}
LoadReport Engine::load(const std::string& folder, const LoadOptions& options) {
  return impl_->load(folder, options);
}
std::uint64_t Engine::checkpoint_bytes(const SaveOptions& options) const {
  pipeline::Pipeline& pipeline = impl_->running("checkpoint_bytes()");
  return engine::checkpoint_bytes(impl_->model(), pipeline, options);
}
void Engine::check_save(const std::string& folder, const SaveOptions& options) const {
  pipeline::Pipeline& pipeline = impl_->running("check_save()");
  engine::check_save(ckpt::posix_file_system(), folder, impl_->model(), pipeline, options);
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
