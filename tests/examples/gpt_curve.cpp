// SPDX-License-Identifier: Apache-2.0
#include "gpt_curve.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>

#include "common/format.hpp"
#include "gpt_reference.hpp"
#include "model.hpp"
#include "schedule.hpp"
#include "support/plain_adamw.hpp"
#include "trainer.hpp"

namespace gpt::test {
namespace {

using outboard::testing::PlainAdamW;
using reference::Doubles;
using reference::ModelResult;
using reference::Parameters;

constexpr std::size_t kDecay = 0, kNoDecay = 1;

double mean(const double* values, std::size_t count) {
  return std::accumulate(values, values + count, 0.0) / static_cast<double>(count);
}

/// Trains in double. Rows of a batch are shared between two threads and their gradients added.
class DoubleTrainer {
 public:
  DoubleTrainer(const Options& options, const Tokens& tokens)
      : options_(options),
        sampler_(tokens, options.shape.context, options.seed + 1),
        held_out_(held_out_rows(tokens, options.shape.context, options.eval_tokens)),
        rate_{options.lr, options.min_lr, options.warmup, options.steps},
        optimizer_({{}, {}}, {.max_grad_norm = options.max_grad_norm,
                              .loss_scaling = {.dynamic = false, .initial_scale = 1.0}}) {
    outboard::sim::Gpu gpu({.memory_bytes = options.device_memory});
    const Model model(gpu, options.shape);
    const auto initial = model.initial_weights(options.seed);
    for (std::size_t i = 0; i < initial.size(); ++i) {
      optimizer_.add({initial[i].begin(), initial[i].end()},
                     model.parameters()[i].decays ? kDecay : kNoDecay);
      weights_.emplace_back();
    }
    read_weights();
  }

  double step(std::uint64_t step) {
    outboard::AdamW settings{.lr = rate_.at(step), .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    optimizer_.set_group(kNoDecay, settings);
    settings.weight_decay = options_.weight_decay;
    optimizer_.set_group(kDecay, settings);
    std::vector<Token> rows(options_.shape.batch * options_.shape.row_tokens());
    sampler_.fill(rows);
    ModelResult result = gradients(rows);
    const double positions = static_cast<double>(options_.shape.positions(options_.shape.batch));
    PlainAdamW::Gradients gradients;
    for (Doubles& gradient : result.gradients) {
      for (double& value : gradient) value /= positions;
      gradients.emplace_back(std::move(gradient));
    }
    (void)optimizer_.step(gradients);
    read_weights();
    return result.loss / positions;
  }

  double held_out() const {
    const std::size_t row = options_.shape.row_tokens(), count = held_out_.size() / row;
    double loss = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      const TokenRows one{std::span(held_out_).subspan(i * row, row), 1, options_.shape.context};
      loss += reference::model_loss(options_.shape, one, weights_);
    }
    return loss / static_cast<double>(options_.shape.positions(count));
  }

 private:
  ModelResult gradients(std::span<const Token> rows) const {
    const std::size_t context = options_.shape.context;
    const std::size_t half = options_.shape.batch / 2, cut = half * options_.shape.row_tokens();
    ModelResult first;
    std::thread other([&] {
      first = reference::model_step(options_.shape, {rows.first(cut), half, context}, weights_);
    });
    ModelResult sum = reference::model_step(
        options_.shape, {rows.subspan(cut), options_.shape.batch - half, context}, weights_);
    other.join();
    sum.loss += first.loss;
    for (std::size_t i = 0; i < sum.gradients.size(); ++i) {
      sum.gradients[i] = reference::add(std::move(sum.gradients[i]), first.gradients[i]);
    }
    return sum;
  }
  void read_weights() {
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] = optimizer_.parameter(i).p;
  }

  const Options& options_;
  RowSampler sampler_;
  std::vector<Token> held_out_;
  LearningRate rate_;
  PlainAdamW optimizer_;
  Parameters weights_;
};

}  // namespace

double Curve::first(std::size_t steps) const {
  return mean(training.data(), steps);
}

double Curve::last(std::size_t steps) const {
  return mean(training.data() + training.size() - steps, steps);
}

Curve train_mixed(Options options, const Tokens& tokens, const std::string& log) {
  options.log = log;
  options.eval_every = 0;
  Curve curve;
  {
    std::ostringstream out;
    Trainer trainer(options, tokens, out);
    trainer.run(false);
  }
  std::ifstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    curve.training.push_back(json["loss"].get<double>());
    curve.skipped += json["outcome"] == "applied" ? 0 : 1;
    curve.held_out = json.value("held_out", 0.0);
  }
  std::filesystem::remove(log);
  return curve;
}

Curve train_double(const Options& options, const Tokens& tokens, std::ostream& progress) {
  DoubleTrainer trainer(options, tokens);
  Curve curve;
  for (std::uint64_t step = 1; step <= options.steps; ++step) {
    curve.training.push_back(trainer.step(step));
    if (step % 100 == 0) {
      progress << "double precision, step " << step << ": " << curve.training.back() << std::endl;
    }
  }
  curve.held_out = trainer.held_out();
  return curve;
}

CurveDifference compare(const Curve& mixed, const Curve& plain) {
  CurveDifference d;
  const std::size_t steps = std::min(mixed.training.size(), plain.training.size());
  for (std::size_t i = 0; i < steps; ++i) {
    const double difference = std::abs(mixed.training[i] - plain.training[i]);
    d.mean += difference / static_cast<double>(steps);
    if (difference <= d.largest) continue;
    d.largest = difference;
    d.largest_step = i + 1;
  }
  d.last_steps = mixed.last(kLastSteps) - plain.last(kLastSteps);
  d.held_out = mixed.held_out - plain.held_out;
  using example::print;
  d.text = print("%zu steps, %llu skipped. Training loss, nats per token, mixed / double:\n", steps,
                 static_cast<unsigned long long>(mixed.skipped));
  const std::size_t stride = std::max<std::size_t>(1, steps / 10);
  for (std::size_t i = 0; i < steps; i += i == 0 ? stride - 1 : stride) {
    d.text += print("  step %5zu  %.4f / %.4f  %+.4f\n", i + 1, mixed.training[i],
                    plain.training[i], mixed.training[i] - plain.training[i]);
  }
  d.text += print("largest difference of a step %.4f (step %llu), mean %.5f\n", d.largest,
                  static_cast<unsigned long long>(d.largest_step), d.mean);
  d.text += print("last %zu steps: %.4f / %.4f, difference %+.5f\n", kLastSteps,
                  mixed.last(kLastSteps), plain.last(kLastSteps), d.last_steps);
  d.text += print("held out at the end: %.4f / %.4f, difference %+.5f\n", mixed.held_out,
                  plain.held_out, d.held_out);
  return d;
}

}  // namespace gpt::test
