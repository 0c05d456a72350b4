// SPDX-License-Identifier: Apache-2.0
/// The model on a software GPU with an engine: its gradients against the double-precision model,
/// and the same bits whatever is kept, computed again, shared or late.
#include "model.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <optional>
#include <set>

#include "gpt_reference.hpp"
#include "gpt_support.hpp"

namespace gpt {
namespace {

using reference::Doubles;

GptShape tiny() {
  return {.layers = 4, .width = 24, .heads = 3, .context = 20, .vocab = 37, .batch = 2};
}

outboard::sim::Options real_time() {
  return {.memory_bytes = std::size_t{16} << 20};
}

/// Gradients leave so slowly that a ring that did not wait would overwrite them.
outboard::sim::Options slow_link(std::uint64_t seed) {
  outboard::sim::Options options = real_time();
  options.mode = outboard::sim::Mode::virtual_time;
  options.seed = seed;
  options.max_random_delay = std::chrono::microseconds(50);
  options.rates.link_down_bytes_per_s = 1e6;
  options.rates.link_up_bytes_per_s = 1e7;
  return options;
}

struct Setting {
  GptShape shape = tiny();
  ModelOptions model{};
  outboard::sim::Options device = real_time();
  std::uint32_t micro_batches = 1;
  outboard::AdamW adam{.lr = 1e-2, .weight_decay = 0.1};
  std::uint64_t seed = 5;
  /// Micro-batch of the first step whose gradients get a scale that FP16 cannot hold.
  std::optional<std::size_t> overflow_in{};
  std::size_t first_row = 0;  ///< of the rows that this seed makes
  double loss_scale = 4096.0;
};

/// A model, its engine and made-up tokens.
class Trial {
 public:
  explicit Trial(const Setting& setting)
      : setting_(setting),
        gpu_(setting.device),
        model_(gpu_, setting.shape, setting.model),
        stream_(gpu_.create_stream()),
        engine_(gpu_.device(), config(setting)),
        random_(setting.seed) {
    outboard::AdamW plain = setting.adam;
    plain.weight_decay = 0.0;
    const Groups groups{engine_.add_group(setting.adam), engine_.add_group(plain)};
    // Larger than the usual start, so that every gradient counts.
    for (const Parameter& parameter : model_.parameters()) {
      std::vector<float>& values = initial_.emplace_back(parameter.elems, parameter.mean);
      for (float& value : values) value += static_cast<float>(random_.unit() - 0.5);
    }
    model_.add_to(engine_, groups, initial_);
    engine_.commit();
    (void)test::random_tokens(setting.first_row * setting.shape.row_tokens(), setting.shape.vocab,
                              random_);
  }
  ~Trial() { gpu_.synchronize(); }

  outboard::StepResult step() {
    const std::size_t rows = setting_.shape.batch;
    std::vector<double> losses(setting_.micro_batches);
    batches_.clear();
    for (double& loss : losses) {
      batches_.push_back(
          test::random_tokens(rows * setting_.shape.row_tokens(), setting_.shape.vocab, random_));
      model_.set_tokens(batches_.back(), stream_);
      model_.forward(engine_, rows, stream_);
      const bool overflow = losses_.empty() && setting_.overflow_in == batches_.size() - 1;
      model_.loss(engine_, rows, engine_.loss_scale() * (overflow ? 0x1p30 : 1.0), &loss, stream_);
      model_.backward(engine_, rows, stream_);
    }
    const outboard::StepResult result = engine_.step();
    gpu_.synchronize(stream_);
    losses_.insert(losses_.end(), losses.begin(), losses.end());
    return result;
  }
  /// With beta1 = 0 the first moment is the unscaled gradient.
  Doubles gradient(std::size_t parameter) {
    std::vector<float> values(model_.parameters()[parameter].elems);
    engine_.read_state(model_.parameters()[parameter].id, {.exp_avg = values});
    return {values.begin(), values.end()};
  }
  TokenRows tokens(std::size_t batch) const {
    return {batches_[batch], setting_.shape.batch, setting_.shape.context};
  }
  /// The weights before the first step as the device has them.
  reference::Parameters weights() const {
    reference::Parameters all;
    for (const auto& master : initial_) {
      Doubles& weight = all.emplace_back();
      for (const float value : master) {
        weight.push_back(
            static_cast<double>(outboard::half_to_float(outboard::half_from_float(value))));
      }
    }
    return all;
  }

  outboard::Engine& engine() { return engine_; }
  Model& model() { return model_; }
  outboard::sim::Gpu& gpu() { return gpu_; }
  outboard::NativeStream stream() const { return stream_; }
  const std::vector<double>& losses() const { return losses_; }

 private:
  static outboard::Config config(const Setting& setting) {
    outboard::Config config;
    config.loss_scaling.initial_scale = setting.loss_scale;
    config.bucket_bytes = std::size_t{8} << 10;
    config.accumulation = setting.micro_batches;
    if (setting.micro_batches > 1) config.accumulate = outboard::Accumulate::host;
    config.check_waits = true;
    return config;
  }

  Setting setting_;
  outboard::sim::Gpu gpu_;
  Model model_;
  outboard::NativeStream stream_;
  outboard::Engine engine_;
  example::Random random_;
  std::vector<std::vector<float>> initial_;
  std::vector<std::vector<Token>> batches_;  // of the last step
  std::vector<double> losses_;
};

/// FP16 activations and gradients: a few 2^-11 of the largest ones add up along the layers.
void expect_close(const Doubles& got, const Doubles& want, const std::string& name) {
  double largest = 0.0, error = 0.0, square = 0.0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 0.01 * largest) << name << "[" << i << "]";
    error += (got[i] - want[i]) * (got[i] - want[i]);
    square += want[i] * want[i];
  }
  EXPECT_LT(std::sqrt(error / square), 0.005) << name;
}

TEST(GptModel, GradientsAndLossEqualTheReference) {
  Trial trial({.adam = {.lr = 1e-3, .beta1 = 0.0}});
  ASSERT_TRUE(trial.step().applied());
  const reference::Parameters weights = trial.weights();
  const double n = static_cast<double>(tiny().positions(tiny().batch));
  EXPECT_NEAR(trial.losses()[0] / n, reference::model_loss(tiny(), trial.tokens(0), weights) / n,
              2e-3);
  const reference::Parameters want = reference::model_gradients(tiny(), trial.tokens(0), weights);
  for (std::size_t i = 0; i < want.size(); ++i) {
    Doubles got = trial.gradient(i);
    for (double& value : got) value *= n;
    expect_close(got, want[i], trial.model().parameters()[i].name);
  }
}

TEST(GptModel, MicroBatchesAddUp) {
  Trial trial({.micro_batches = 3, .adam = {.lr = 1e-3, .beta1 = 0.0}});
  ASSERT_TRUE(trial.step().applied());
  const double n = static_cast<double>(tiny().positions(tiny().batch));
  const reference::Parameters weights = trial.weights();
  std::vector<reference::Parameters> parts;
  for (std::size_t i = 0; i < 3; ++i) {
    parts.push_back(reference::model_gradients(tiny(), trial.tokens(i), weights));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    Doubles got = trial.gradient(i);
    for (double& value : got) value *= 3.0 * n;
    expect_close(got, reference::add(reference::add(parts[0][i], parts[1][i]), parts[2][i]),
                 trial.model().parameters()[i].name);
  }
}

/// The first gradient of `micro_batches` x `batch` rows, and their loss.
struct FirstGradient {
  std::vector<Doubles> gradients;
  double loss = 0.0;
};
constexpr double kAccumulationScale = 16384.0;
FirstGradient first_gradient(std::uint32_t micro_batches, std::size_t batch,
                             std::size_t first_row = 0) {
  // Whole tiles of 256 positions either way, so that every product of a position is the same call.
  const GptShape shape{
      .layers = 2, .width = 24, .heads = 3, .context = 512, .vocab = 37, .batch = batch};
  Trial trial({.shape = shape,
               .device = {.memory_bytes = std::size_t{64} << 20},
               .micro_batches = micro_batches,
               .adam = {.lr = 1e-3, .beta1 = 0.0},
               .first_row = first_row,
               .loss_scale = kAccumulationScale});
  EXPECT_TRUE(trial.step().applied());
  FirstGradient first;
  for (std::size_t i = 0; i < trial.model().parameters().size(); ++i) {
    first.gradients.push_back(trial.gradient(i));
  }
  for (const double loss : trial.losses()) first.loss += loss;
  return first;
}

// The mean over eight rows is the mean of the means over four times two, and every position's
// gradient is the same bits but for a factor of 4, a power of two. So what may differ is: each
// micro-batch's gradient is rounded to FP16 once (2^-11 of it; the tied embedding twice, for its
// two uses), that of the whole batch once, and FP32 sums over positions run in another order. The
// engine's own sum of four is FP32 and cannot be seen beside that. The embeddings are beyond all
// layers: there an FP16 subnormal on the way, which a factor of 4 rounds elsewhere, may have moved
// the roundings of two of the eight rows' parts.
TEST(GptModel, FourMicroBatchesOfTwoRowsEqualOneOfEight) {
  const FirstGradient whole = first_gradient(1, 8), sum = first_gradient(4, 2);
  std::vector<FirstGradient> parts;
  for (std::size_t i = 0; i < 4; ++i) parts.push_back(first_gradient(1, 2, 2 * i));
  EXPECT_NEAR(sum.loss, whole.loss, 1e-12 * whole.loss) << "each position's is the same bits";
  constexpr double kSmallest =
      0x1p-25 / kAccumulationScale;  // half an FP16 subnormal under the loss scale
  double nearest = 0.0;
  for (std::size_t p = 0; p < whole.gradients.size(); ++p) {
    const Doubles& want = whole.gradients[p];
    const double roundings = p == 0 ? 2.0 : 1.0;
    double largest = 0.0;
    for (const double value : want) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < want.size(); ++i) {
      double magnitude = std::abs(want[i]), exact = 0.0;
      for (const FirstGradient& part : parts) {
        magnitude += std::abs(part.gradients[p][i]) / 4.0;
        exact += part.gradients[p][i] / 4.0;
      }
      const double bound = roundings * (0x1p-11 * magnitude + 2.0 * kSmallest) +
                           64.0 * 0x1p-24 * largest + (p <= 1 ? 0x1p-11 * largest / 4.0 : 0.0);
      const double difference = std::abs(sum.gradients[p][i] - want[i]);
      ASSERT_LE(difference, bound) << p << "[" << i << "]";
      ASSERT_NEAR(sum.gradients[p][i], exact, 0x1p-22 * magnitude) << p << "[" << i << "]";
      nearest = std::max(nearest, difference / bound);
    }
  }
  std::cout << "largest difference: " << nearest << " of its bound\n";
  EXPECT_GT(nearest, 0.0) << "roundings in other places leave something";
}

TEST(GptModel, AnOverflowInAnyMicroBatchSkipsTheWholeStep) {
  for (std::size_t batch = 0; batch < 3; ++batch) {
    SCOPED_TRACE(batch);
    Trial trial({.micro_batches = 3, .overflow_in = batch});
    const auto state = [&trial] {
      std::vector<float> all;
      for (const Parameter& parameter : trial.model().parameters()) {
        std::vector<float> p(parameter.elems), m(parameter.elems), v(parameter.elems);
        trial.engine().read_state(parameter.id, {p, m, v});
        for (const auto& part : {p, m, v}) all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    };
    const std::vector<float> before = state();
    const outboard::StepResult skipped = trial.step();
    EXPECT_EQ(skipped.outcome, outboard::StepOutcome::skipped);
    EXPECT_TRUE(skipped.non_finite.has_value());
    EXPECT_EQ(state(), before);
    EXPECT_EQ(trial.engine().loss_scale(), 0.5 * skipped.loss_scale);
    EXPECT_TRUE(trial.step().applied()) << "nothing of the skipped step is left in the sums";
    EXPECT_NE(state(), before);
  }
}

TEST(GptModel, RefusesToAddUpMicroBatchesInBuffersThatAreOverwritten) {
  outboard::sim::Gpu gpu(real_time());
  for (const GradBuffers buffers : {GradBuffers::ring, GradBuffers::full}) {
    const auto options = [buffers](std::uint32_t count, outboard::Accumulate accumulate) {
      return ModelOptions{.grad_buffers = buffers, .micro_batches = {count, accumulate}};
    };
    const Model one(gpu, tiny(), options(1, outboard::Accumulate::trainer));
    const Model sums(gpu, tiny(), options(4, outboard::Accumulate::host));
    try {
      const Model bad(gpu, tiny(), options(4, outboard::Accumulate::trainer));
      ADD_FAILURE() << "not refused";
    } catch (const outboard::Error& error) {
      EXPECT_EQ(error.code(), outboard::ErrorCode::invalid_config);
      const std::string text = error.what();
      for (const char* part :
           {buffers == GradBuffers::ring ? "GradBuffers::ring" : "GradBuffers::full",
            "Accumulate::trainer", "4 micro-batches", "use Accumulate::host"}) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
      }
    }
  }
}

struct Outcome {
  std::uint64_t digest;
  std::vector<double> losses;
  bool operator==(const Outcome&) const = default;
};

Outcome train(const Setting& setting) {
  Trial trial(setting);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(trial.step().applied());
  return {trial.engine().state_digest(), trial.losses()};
}

TEST(GptModel, CheckpointingRingAndThreadsGiveTheSameBits) {
  const Outcome want =
      train({.model = {.checkpointing = false, .grad_buffers = GradBuffers::full}});
  for (const bool checkpointing : {false, true}) {
    for (const GradBuffers buffers : {GradBuffers::ring, GradBuffers::full}) {
      for (const std::size_t threads : {1u, 3u}) {
        const ModelOptions options{checkpointing, buffers, threads, 0.0};
        EXPECT_EQ(train({.model = options}), want)
            << checkpointing << static_cast<int>(buffers) << threads;
      }
    }
  }
}

TEST(GptModel, RingWaitsForGradientsThatLeaveSlowly) {
  for (const std::uint32_t micro_batches : {1u, 3u}) {
    const Outcome want =
        train({.model = {.grad_buffers = GradBuffers::full}, .micro_batches = micro_batches});
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      for (const GradBuffers buffers : {GradBuffers::ring, GradBuffers::full}) {
        EXPECT_EQ(train({.model = {.grad_buffers = buffers, .virtual_flops_per_s = 1e12},
                         .device = slow_link(seed),
                         .micro_batches = micro_batches}),
                  want)
            << micro_batches << " micro-batches, seed " << seed;
      }
    }
  }
}

TEST(GptModel, TakesTheDeviceMemoryThatItsShapeSays) {
  for (const bool checkpointing : {false, true}) {
    for (const GradBuffers buffers : {GradBuffers::ring, GradBuffers::full}) {
      outboard::sim::Gpu gpu(real_time());
      const Model model(gpu, tiny(), {.checkpointing = checkpointing, .grad_buffers = buffers});
      const std::size_t said = tiny().weight_bytes() + tiny().gradient_bytes(buffers) +
                               tiny().activation_bytes(checkpointing);
      EXPECT_GE(gpu.memory().used_bytes, said);
      EXPECT_LT(gpu.memory().used_bytes - said, 256 * gpu.counters().live_allocations);
    }
  }
}

TEST(GptModel, LogitsOfAPositionDependOnWhatComesBeforeOnly) {
  Trial trial({});
  const GptShape shape = tiny();
  example::Random random(3);
  std::vector<Token> row = test::random_tokens(shape.row_tokens(), shape.vocab, random);
  const auto logits_at = [&](std::size_t position) {
    std::vector<float> logits(shape.vocab);
    trial.model().set_tokens(row, trial.stream());
    trial.model().forward(trial.engine(), 1, trial.stream());
    trial.model().copy_logits(0, position, logits, trial.stream());
    trial.gpu().synchronize(trial.stream());
    return logits;
  };
  const std::vector<float> before = logits_at(7);
  for (std::size_t i = 8; i < row.size(); ++i) row[i] = 0;
  EXPECT_EQ(logits_at(7), before);
  row[7] = static_cast<Token>((row[7] + 1u) % shape.vocab);
  EXPECT_NE(logits_at(7), before);
}

TEST(GptModel, LossOfFewerRowsIsThatOfThoseRows) {
  Trial trial({});
  const GptShape shape = tiny();
  example::Random random(8);
  const std::vector<Token> rows = test::random_tokens(shape.row_tokens(), shape.vocab, random);
  double loss = 0.0;
  trial.model().set_tokens(rows, trial.stream());
  trial.model().forward(trial.engine(), 1, trial.stream());
  trial.model().loss(trial.engine(), 1, 0.0, &loss, trial.stream());
  trial.gpu().synchronize(trial.stream());
  const TokenRows tokens{rows, 1, shape.context};
  const double want = reference::model_loss(shape, tokens, trial.weights());
  EXPECT_NEAR(loss, want, 2e-3 * static_cast<double>(shape.context));
}

TEST(GptModel, InitialWeightsFollowTheirDeviations) {
  outboard::sim::Gpu gpu(real_time());
  const Model model(gpu, tiny());
  const auto initial = model.initial_weights(1);
  EXPECT_EQ(initial, model.initial_weights(1));
  EXPECT_NE(initial, model.initial_weights(2));
  std::set<std::string> names;
  for (std::size_t i = 0; i < initial.size(); ++i) {
    const Parameter& parameter = model.parameters()[i];
    names.insert(parameter.name);
    double square = 0.0;
    for (const float value : initial[i]) {
      const double off = static_cast<double>(value) - static_cast<double>(parameter.mean);
      square += off * off;
    }
    const double deviation = std::sqrt(square / static_cast<double>(parameter.elems));
    const bool matrix = parameter.name.find("bias") == std::string::npos &&
                        parameter.name.find("gain") == std::string::npos;
    const bool projects = parameter.name.find("project.w") != std::string::npos ||
                          parameter.name.find("down.w") != std::string::npos;
    const double full = 0.8 / std::sqrt(static_cast<double>(model.shape().width));
    const double want = !matrix ? 0.0 : projects ? full / std::sqrt(8.0) : full;
    EXPECT_NEAR(deviation, want, 0.1 * want) << parameter.name;
    EXPECT_EQ(parameter.decays, matrix) << parameter.name;
  }
  EXPECT_EQ(names.size(), initial.size());
}

TEST(GptModel, RefusesABadShapeAndADeviceThatIsTooSmall) {
  outboard::sim::Gpu gpu({.memory_bytes = 100000});
  GptShape bad = tiny();
  bad.heads = 5;
  EXPECT_THROW(Model(gpu, bad), outboard::Error);
  try {
    const Model model(gpu, tiny());
    ADD_FAILURE() << "fits";
  } catch (const outboard::Error& error) {
    EXPECT_EQ(error.code(), outboard::ErrorCode::out_of_memory);
  }
  EXPECT_EQ(gpu.memory().used_bytes, 0u);
}

}  // namespace
}  // namespace gpt
