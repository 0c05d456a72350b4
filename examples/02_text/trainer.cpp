// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <ostream>

#include "../common/format.hpp"
#include "../common/sample.hpp"

namespace text {
namespace {

using example::show_bytes;
using example::show_digest;
using outboard::Error;

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

Trainer::Trainer(const Options& options, const Corpus& corpus, std::ostream& out)
    : options_(options),
      corpus_(corpus),
      out_(out),
      sampler_(corpus, ModelShape::kContext, options.seed + 1),
      positions_(held_out_positions(corpus, ModelShape::kContext, options.eval_bytes)),
      order1_loss_(order1_loss(count_pairs(corpus), corpus, positions_)),
      log_(options.log),
      gpu_(example::device_options(options)),
      model_(gpu_, {.embed = options.embed, .width = options.width, .batch = options.batch},
             options.virtual_seed ? example::kVirtualFlops : 0.0),
      stream_(gpu_.create_stream("train")),
      engine_(gpu_.device(), example::engine_config(options)) {
  const auto initial = model_.initial_weights(options.seed);
  group_ = engine_.add_group(settings(1));
  model_.add_to(engine_, group_, initial);
  engine_.commit();
}

Trainer::~Trainer() {
  try {
    gpu_.synchronize(stream_);
  } catch (const Error&) {
    // A lost device has been reported by the call that found it so.
  }
}

outboard::AdamW Trainer::settings(std::uint64_t step) const {
  // Linear warm-up over a twentieth, then half a cosine down to a twentieth.
  const double at = static_cast<double>(step) / static_cast<double>(options_.steps);
  const double warm = std::min(1.0, at / 0.05);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * at));
  return {.lr = options_.lr * warm * (0.05 + 0.95 * cosine),
          .beta1 = 0.9,
          .beta2 = 0.99,
          .eps = 1e-8,
          .weight_decay = 0.01};
}

StepReport Trainer::train_step(std::uint64_t step) {
  const auto start = std::chrono::steady_clock::now();
  const double kernels_before = model_.kernel_ms();
  tokens_.resize(ModelShape::token_bytes(options_.batch));
  sampler_.fill(tokens_);
  engine_.set_group(group_, settings(step));

  model_.set_tokens(tokens_, stream_);
  model_.forward(engine_, options_.batch, stream_);
  model_.loss(options_.batch, engine_.loss_scale(), &loss_sum_, stream_);
  model_.backward(engine_, options_.batch, stream_);

  StepReport report{.result = {}, .batch = options_.batch, .digest = {}, .held_out = {}};
  // The tokens and the loss were copied before the gradients were made, and step() has waited for
  // those: both are the host's again.
  report.result = engine_.step();
  report.loss = loss_sum_ / static_cast<double>(options_.batch);
  if (options_.digest) report.digest = engine_.state_digest();
  report.ms = milliseconds_since(start);
  train_ms_ += report.ms;
  kernel_ms_ += model_.kernel_ms() - kernels_before;
  return report;
}

double Trainer::held_out_loss() {
  const std::size_t row_bytes = ModelShape::token_bytes(1);
  std::vector<std::uint8_t> rows;
  for (const std::size_t at : positions_) {
    const auto begin = corpus_.bytes.begin() + static_cast<std::ptrdiff_t>(at);
    rows.insert(rows.end(), begin - ModelShape::kContext, begin + 1);
  }
  const std::size_t batches = (positions_.size() + options_.batch - 1) / options_.batch;
  std::vector<double> losses(batches);
  for (std::size_t i = 0; i < batches; ++i) {
    const std::size_t first = i * options_.batch;
    const std::size_t count = std::min(options_.batch, positions_.size() - first);
    model_.set_tokens(std::span(rows).subspan(first * row_bytes, count * row_bytes), stream_);
    model_.forward(engine_, count, stream_);
    model_.loss(count, 0.0, &losses[i], stream_);
  }
  gpu_.synchronize(stream_);
  double sum = 0.0;
  for (const double loss : losses) sum += loss;
  return sum / static_cast<double>(positions_.size());
}

void Trainer::print_ledger() {
  out_ << example::memory_text({.parameters = model_.parameter_elems(),
                                .weights = model_.weight_bytes(),
                                .gradients = model_.gradient_bytes(),
                                .activations = model_.activation_bytes(),
                                .tiles = show_bytes(model_.scratch().bytes()) + " of FP32 tiles"},
                               engine_, gpu_.memory());
}

void Trainer::run(const std::atomic<bool>& stop) {
  out_ << step_heading();
  bool last = false;
  for (std::uint64_t step = 1; !last; ++step) {
    StepReport report = train_step(step);
    steps_ = step;
    last = step == options_.steps || stop;
    const bool evaluate = options_.eval_every != 0 && step % options_.eval_every == 0;
    if (evaluate || last) report.held_out = held_out_loss();
    const bool print = step == 1 || last || options_.digest || step % options_.print_every == 0;
    if (print) out_ << step_line(report);
    if (report.held_out) {
      out_ << example::held_out_line(step, {.model = *report.held_out, .counted = order1_loss_})
           << "\n";
    }
    if (log_.is_open()) log_.write(json_line(report));
    out_ << std::flush;
  }
}

void Trainer::print_summary() {
  engine_.synchronize();
  const outboard::sim::MemoryUse use = gpu_.memory();
  out_ << "\n"
       << time_text({.steps = steps_,
                     .batch = options_.batch,
                     .parameters = model_.parameter_elems(),
                     .train_ms = train_ms_,
                     .kernel_ms = kernel_ms_,
                     .virtual_time = options_.virtual_seed.has_value(),
                     .stats = engine_.stats()})
       << "device memory: peak " << show_bytes(use.peak_bytes) << " of "
       << show_bytes(use.limit_bytes) << "\n"
       << "state digest: " << show_digest(engine_.state_digest()) << "\n";
}

void Trainer::print_sample() {
  if (options_.sample_bytes == 0) return;
  example::Random random(options_.seed + 2);
  const auto start = corpus_.bytes.begin() + static_cast<std::ptrdiff_t>(corpus_.held_out[0].begin);
  std::vector<std::uint8_t> written(start, start + ModelShape::kContext);
  std::vector<Half> halves(kVocabulary);
  std::vector<float> logits(kVocabulary);
  for (std::size_t i = 0; i < options_.sample_bytes; ++i) {
    std::vector<std::uint8_t> row(written.end() - ModelShape::kContext, written.end());
    row.push_back(0);  // the target, which nothing reads here
    model_.set_tokens(row, stream_);
    model_.forward(engine_, 1, stream_);
    model_.copy_logits(halves, stream_);
    gpu_.synchronize(stream_);
    widen(halves, logits);
    written.push_back(
        static_cast<std::uint8_t>(example::draw(logits, options_.temperature, random)));
  }
  out_ << "\nsample, from the first " << ModelShape::kContext << " held-out bytes on:\n"
       << example::show_text(written) << "\n";
}

}  // namespace text
