// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <ostream>
#include <stdexcept>
#include <thread>

#include "../common/format.hpp"
#include "fit.hpp"
#include "generate.hpp"

namespace gpt {
namespace {

using outboard::Error;

constexpr const char* kDataOrder = "data order";
constexpr const char* kHeads = "heads";

outboard::Config engine_config(const Options& options) {
  outboard::Config config = example::engine_config(options);
  config.accumulation = options.accumulation;
  config.accumulate = accumulate_of(options.accumulation);
  return config;
}

ModelOptions model_options(const Options& options) {
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  return {.checkpointing = options.checkpointing,
          .grad_buffers = options.grad_buffers,
          .threads = options.kernel_threads != 0 ? options.kernel_threads : cores,
          .virtual_flops_per_s = options.virtual_seed ? example::kVirtualFlops : 0.0,
          .micro_batches = {options.accumulation, accumulate_of(options.accumulation)}};
}

/// Tells texts apart: FNV-1a (Fowler, Noll and Vo) over the tokens.
std::string fingerprint(const std::vector<Token>& tokens) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const Token token : tokens) hash = (hash ^ token) * 0x100000001B3U;
  return example::show_digest(hash);
}

double order2_loss(const Tokens& tokens, const std::vector<Token>& rows, const GptShape& shape) {
  return ngram_loss(count_training(tokens, 2, shape.vocab), rows, shape.context);
}

std::string saved_line(const outboard::SaveReport& report, std::uint64_t step) {
  return "saved '" + report.folder + "' after step " + std::to_string(step) + ", " +
         example::show_bytes(report.bytes);
}

}  // namespace

Trainer::Trainer(const Options& options, const Tokens& tokens, std::ostream& out)
    : options_(options),
      tokens_(tokens),
      out_(out),
      progress_(out, terminal_columns()),
      sampler_(tokens, options.shape.context, options.seed + 1),
      held_out_(held_out_rows(tokens, options.shape.context, options.eval_tokens)),
      order2_loss_(order2_loss(tokens, held_out_, options.shape)),
      learning_rate_{options.lr, options.min_lr, options.warmup, options.steps},
      watch_(options.shape.vocab),
      log_(options.log, options.resume.empty() ? example::StepLog::Begin::anew
                                               : example::StepLog::Begin::behind_what_is_there),
      machine_(options.cuda ? make_cuda_machine(0)
                            : make_machine(outboard::sim::Gpu(example::device_options(options)))),
      model_(machine_, options.shape, model_options(options)),
      stream_(machine_->create_stream("train")),
      clock_(machine_, model_, options.accumulation),
      engine_(machine_->device(), engine_config(options)),
      rows_(options.accumulation * options.shape.batch * options.shape.row_tokens()),
      losses_(options.accumulation) {
  groups_ = {.decay = engine_.add_group({}), .no_decay = engine_.add_group({})};
  set_groups(learning_rate_.at(1));
  const auto initial = model_.initial_weights(options.seed);
  model_.add_to(engine_, groups_, initial);
  engine_.commit();
}

Trainer::~Trainer() {
  try {
    machine_->synchronize(stream_);
  } catch (const Error&) {
    // A lost device has been reported by the call that found it so.
  }
}

void Trainer::set_groups(double lr) {
  outboard::AdamW settings{.lr = lr, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
  engine_.set_group(groups_.no_decay, settings);
  settings.weight_decay = options_.weight_decay;
  engine_.set_group(groups_.decay, settings);
}

double Trainer::virtual_ms() const {
  return std::chrono::duration<double, std::milli>(machine_->now()).count();
}

void Trainer::queue_micro_batches() {
  const std::size_t batch = options_.shape.batch;
  const std::size_t tokens = batch * options_.shape.row_tokens();
  const bool clocked = !options_.virtual_seed;
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const auto rows = std::span(rows_).subspan(i * tokens, tokens);
    sampler_.fill(rows);
    model_.set_tokens(rows, stream_);
    if (clocked) clock_.mark(stream_);
    model_.forward(engine_, batch, stream_);
    if (clocked) clock_.mark(stream_);
    model_.loss(engine_, batch, engine_.loss_scale(), &losses_[i], stream_);
    model_.backward(engine_, batch, stream_);
    if (clocked) clock_.mark(stream_);
  }
}

StepReport Trainer::train_step(std::uint64_t step) {
  const double start = virtual_ms();
  const std::uint64_t applied = engine_.stats().steps_applied;
  StepReport report{.lr = learning_rate_.at(applied + 1), .steps = options_.steps};
  set_groups(report.lr);
  clock_.begin_step();
  queue_micro_batches();
  // Tokens and losses were copied before the last gradients were made, and step() has waited for
  // those: both are the host's again.
  report.result = engine_.step();
  if (!options_.virtual_seed) report.split = clock_.end_step(stream_);
  report.ms = report.split ? report.split->total() : virtual_ms() - start;
  if (options_.digest) report.digest = engine_.state_digest();
  report.tokens = options_.accumulation * options_.shape.positions(options_.shape.batch);
  report.loss =
      std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(report.tokens);
  const outboard::StepStats stats = engine_.stats();
  report.applied = stats.steps_applied;
  report.skipped = stats.steps_skipped;
  report.update_busy_ms = (stats.update_busy_us - update_busy_us_) * 1e-3;
  update_busy_us_ = stats.update_busy_us;
  steps_ = step + 1 - first_step_;
  train_ms_ += report.ms;
  if (report.split) split_ += *report.split;
  report.eta_s =
      train_ms_ / static_cast<double>(steps_) * static_cast<double>(options_.steps - step) * 1e-3;
  return report;
}

double Trainer::held_out_loss() {
  const std::size_t row = options_.shape.row_tokens();
  const std::size_t count = held_out_.size() / row;
  const std::size_t batch = options_.shape.batch;
  std::vector<double> losses((count + batch - 1) / batch);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const std::size_t rows = std::min(batch, count - i * batch);
    model_.set_tokens(std::span(held_out_).subspan(i * batch * row, rows * row), stream_);
    model_.forward(engine_, rows, stream_);
    model_.loss(engine_, rows, 0.0, &losses[i], stream_);
  }
  machine_->synchronize(stream_);
  return std::accumulate(losses.begin(), losses.end(), 0.0) /
         static_cast<double>(options_.shape.positions(count));
}

void Trainer::print_ledger() {
  const MemoryNeed need = memory_need(options_.shape, memory_mode(options_));
  out_ << example::memory_text(
      {.parameters = options_.shape.parameter_elems(),
       .weights = need.weights,
       .gradients = need.gradients,
       .activations = need.activations,
       .all = device_bytes_without_offload(options_.shape),
       .tiles = example::show_bytes(model_.scratch_bytes()) + " of FP32 tiles, " +
                example::show_bytes(model_.thread_scratch_bytes()) + " for each thread (at most " +
                example::show_bytes(kMostThreadScratch) + ")"},
      engine_, machine_->memory());
}

/// What must be the same for the data to come in the same order.
std::string Trainer::data_order() const {
  const GptShape& shape = options_.shape;
  return "seed " + std::to_string(options_.seed) + ", " + std::to_string(tokens_.values.size()) +
         " tokens (" + fingerprint(tokens_.values) + "), context " + std::to_string(shape.context) +
         ", batch " + std::to_string(shape.batch) + ", accumulation " +
         std::to_string(options_.accumulation);
}

void Trainer::prepare_checkpoints() {
  if (!options_.resume.empty()) resume();
  if (!options_.save.empty()) engine_.check_save(options_.save, {.keep_last = options_.keep});
}

/// Weights that were imported belong to no data yet.
void Trainer::require_own(const outboard::LoadReport& report) const {
  const auto entry = [&](const char* key) -> std::optional<std::string> {
    const auto found = report.entries.find(key);
    return found == report.entries.end() ? std::nullopt : std::optional(found->second);
  };
  const std::string heads = std::to_string(options_.shape.heads);
  if (entry(kHeads).value_or(heads) != heads) {
    throw std::runtime_error("--resume: '" + report.folder + "' has " + *entry(kHeads) +
                             " heads and this run's model " + heads + "; repeat --heads");
  }
  const auto order = entry(kDataOrder);
  if (order == data_order() || (!order && report.steps == 0)) return;
  throw std::runtime_error("--resume: '" + report.folder + "' is of another run: its data is \"" +
                           order.value_or("") + "\" and this run's is \"" + data_order() +
                           "\"; repeat the flags and the data of the run that saved it");
}

void Trainer::resume() {
  const outboard::LoadReport report = engine_.load(options_.resume);
  require_own(report);
  if (report.steps >= options_.steps) {
    throw std::runtime_error("--resume: '" + report.folder + "' is after step " +
                             std::to_string(report.steps) + ", and --steps is " +
                             std::to_string(options_.steps) + "; raise --steps");
  }
  // The data's random numbers, drawn again.
  for (std::uint64_t step = 0; step < report.steps; ++step) sampler_.fill(rows_);
  first_step_ = report.steps + 1;
  update_busy_us_ = engine_.stats().update_busy_us;
  out_ << "going on from '" << report.folder << "', after step " << report.steps << "\n";
}

outboard::SaveOptions Trainer::save_options() const {
  return {.keep_last = options_.keep,
          .entries = {{kDataOrder, data_order()}, {kHeads, std::to_string(options_.shape.heads)}}};
}

std::uint64_t Trainer::save(std::uint64_t step) {
  tell_of_save(true);
  const outboard::SaveReport report = engine_.save(options_.save, save_options());
  progress_.note(saved_line(report, step));
  return report.digest;
}

void Trainer::save_beside(std::uint64_t step) {
  tell_of_save(true);
  saving_.emplace(engine_.save_async(options_.save, save_options()));
  saving_step_ = step;
}

/// A failure leaves the checkpoints before: the run goes on, and the next save may succeed.
void Trainer::tell_of_save(bool wait) {
  if (!saving_ || (!wait && !saving_->done())) return;
  try {
    progress_.note(saved_line(saving_->wait(), saving_step_));
  } catch (const outboard::Error& failure) {
    progress_.note("could not save after step " + std::to_string(saving_step_) + ": " +
                   failure.what());
  }
  saving_.reset();
}

void Trainer::run(const std::atomic<bool>& stop) {
  out_ << step_heading();
  bool last = false;
  for (std::uint64_t step = first_step_; !last; ++step) {
    StepReport report = train_step(step);
    last = step == options_.steps || stop;
    const bool kept = step == first_step_ || last || options_.digest || !report.result.applied() ||
                      step % options_.print_every == 0;
    progress_.step(step_line(report), kept);
    watch_.check(step, report.loss, report.lr);
    const bool evaluate = options_.eval_every != 0 && step % options_.eval_every == 0;
    if (evaluate || last) {
      report.held_out = held_out_loss();
      report.order2 = order2_loss_;
      progress_.note(held_out_line(report, unit_of(options_.tokens)));
    }
    const bool save_now = options_.save_every != 0 && step % options_.save_every == 0;
    tell_of_save(false);
    if (!options_.save.empty() && last) report.digest = save(step);
    if (save_now && !last && options_.save_beside) save_beside(step);
    if (save_now && !last && !options_.save_beside) report.digest = save(step);
    if (last) report.products = products_ = measure_products();
    if (log_.is_open()) log_.write(json_line(report));
  }
}

std::optional<ProductRate> Trainer::measure_products() const {
  if (!options_.measure_products || options_.virtual_seed || options_.cuda) return {};
  const auto products =
      matrix_products(options_.shape, options_.shape.batch, options_.checkpointing, Pass::training);
  const std::size_t threads = model_.options().threads;
  const double seconds = sgemm_seconds(products, threads);
  const auto tokens = static_cast<double>(options_.shape.positions(options_.shape.batch));
  const auto batches = static_cast<double>(steps_ * options_.accumulation);
  return ProductRate{.tokens_per_s = tokens / seconds,
                     .flops_per_s = total_flops(products) / seconds,
                     .share = batches * seconds * 1e3 / train_ms_,
                     .threads = threads};
}

void Trainer::print_summary() {
  engine_.synchronize();
  const outboard::sim::MemoryUse use = machine_->memory();
  TimeReport report{
      .steps = steps_,
      .tokens = steps_ * options_.accumulation * options_.shape.positions(options_.shape.batch),
      .parameters = options_.shape.parameter_elems(),
      .ms = train_ms_,
      .stats = engine_.stats(),
      .products = products_};
  if (!options_.virtual_seed) report.split = split_;
  out_ << "\n"
       << time_text(report) << "device memory: peak " << example::show_bytes(use.peak_bytes)
       << " of " << example::show_bytes(use.limit_bytes) << "\n"
       << "state digest: " << example::show_digest(engine_.state_digest()) << "\n";
}

std::vector<Token> Trainer::prompt() const {
  if (!options_.prompt.empty()) {
    const auto& text = options_.prompt;
    std::vector<Token> tokens;
    for (const char c : text) tokens.push_back(static_cast<std::uint8_t>(c));
    return tokens;
  }
  const std::size_t length = std::min<std::size_t>(options_.shape.context, 64);
  return {held_out_.begin(), held_out_.begin() + static_cast<std::ptrdiff_t>(length)};
}

void Trainer::print_sample() {
  if (options_.sample_tokens == 0) return;
  const SampleRequest request{.prompt = prompt(),
                              .count = options_.sample_tokens,
                              .temperature = options_.temperature,
                              .seed = options_.seed + 2};
  const auto written = generate(model_, engine_, *machine_, stream_, request);
  const auto all = std::span<const Token>(written);
  out_ << "\nsample, after: " << show_tokens(all.first(request.prompt.size()), options_.tokens)
       << "\n"
       << show_tokens(all.subspan(request.prompt.size()), options_.tokens) << "\n";
}

}  // namespace gpt
