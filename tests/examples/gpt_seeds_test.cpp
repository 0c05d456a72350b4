// SPDX-License-Identifier: Apache-2.0
/// The GPT example's model in virtual time, a thousand times: delays, legal reordering, speeds,
/// schedules, placements and moves between steps are drawn from a seed, and the losses, norms and
/// digests of all runs that do the same arithmetic are the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/random.hpp"
#include "engine/drawn_options.hpp"
#include "engine/splits.hpp"
#include "model.hpp"
#include "outboard/outboard.hpp"
#include "support/seeds.hpp"

namespace gpt {
namespace {

using outboard::Accumulate;
using outboard::Config;
using outboard::Placement;
using outboard::Schedule;
using outboard::testing::Draw;

constexpr std::uint64_t kSeeds = 1200;
constexpr std::uint64_t kSteps = 6;
constexpr GptShape kShape{
    .layers = 2, .width = 16, .heads = 2, .context = 6, .vocab = 96, .batch = 2};

/// Runs of one kind do the same arithmetic.
enum class Kind : std::uint8_t { clipped, unclipped, accumulated };
constexpr std::array kKinds = {Kind::clipped, Kind::unclipped, Kind::accumulated};

struct Way {
  Kind kind = Kind::clipped;
  outboard::sim::Options device;
  Config config;
  ModelOptions model;
  std::map<std::uint64_t, outboard::PlacementChange> moves;  ///< before which step
};

struct Seen {
  std::string bits;           ///< of every step, one line each
  std::uint64_t skipped = 0;  ///< steps
  std::uint64_t moves = 0;    ///< that the engine chose itself
};

/// As the draws of the engine's own tests know a model.
outboard::testing::TinyOptions tiny(const Config& config) {
  outboard::testing::TinyOptions options;
  options.config = config;
  for (const std::size_t elems : kShape.parameter_sizes()) {
    options.parameters.push_back({.name = "", .elems = elems});
  }
  return options;
}

Way plain_way(Kind kind) {
  Way way;
  way.kind = kind;
  way.device.mode = outboard::sim::Mode::virtual_time;
  way.device.memory_bytes = std::size_t{4} << 20;
  way.config.bucket_bytes = std::size_t{8} << 10;
  way.config.host.threads_per_node = 1;
  way.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  if (kind == Kind::unclipped) {
    way.config.loss_scaling = {.dynamic = false, .initial_scale = 1024.0};
  } else {  // the first steps overflow
    way.config.max_grad_norm = 0.5;
    way.config.loss_scaling = {.initial_scale = 1 << 17, .growth_interval = 2};
  }
  if (kind == Kind::accumulated) {
    way.config.accumulation = 2;
    way.config.accumulate = Accumulate::host;
  }
  way.model.virtual_flops_per_s = 1e9;
  return way;
}

/// Shares that go to the device, and state that is streamed.
void draw_moves(Draw& draw, Way& way) {
  way.config.keep_host_room = true;
  for (std::uint64_t step = 1; step < kSteps; ++step) {
    const double share = static_cast<double>(draw.below(11)) / 10.0;
    if (!draw.coin()) continue;
    outboard::PlacementChange& move = way.moves[step];
    move.placement = draw.below(3) == 0 ? Placement::device_streamed : Placement::fraction;
    if (move.placement == Placement::device_streamed) continue;
    move.device_fraction = nearest_split(tiny(way.config), share).fraction;
  }
}

[[nodiscard]] bool streams(const Way& way) {
  const auto to_streamed = [](const auto& move) {
    return move.second.placement == Placement::device_streamed;
  };
  return way.config.placement == Placement::device_streamed ||
         std::ranges::any_of(way.moves, to_streamed);
}

Way drawn_way(std::uint64_t seed) {
  Draw draw(seed);
  Way way = plain_way(kKinds.at(draw.below(kKinds.size())));
  way.device.seed = seed;
  outboard::testing::draw_device(draw, way.device);
  const std::array schedules = {Schedule::exact, Schedule::exact, Schedule::blocking,
                                Schedule::serial};
  way.config.schedule = schedules.at(draw.below(schedules.size()));
  if (way.kind == Kind::unclipped && draw.coin()) way.config.schedule = Schedule::open;
  const Accumulate accumulate = way.config.accumulate;
  outboard::testing::draw_config(draw, way.config);
  way.config.accumulate = accumulate;
  if (draw.below(4) == 0 && way.config.schedule != Schedule::open &&
      accumulate == Accumulate::trainer) {
    way.config.placement = Placement::automatic;
    way.config.device_fraction = 0.0;
  }
  auto options = tiny(way.config);
  outboard::testing::round_fraction(options);
  way.config = options.config;
  if (draw.below(3) == 0 && way.config.placement != Placement::automatic) draw_moves(draw, way);
  way.model.checkpointing = draw.coin();
  const bool leaves = accumulate == Accumulate::host ||
                      (way.config.placement == Placement::host && way.moves.empty());
  way.model.grad_buffers = leaves && draw.coin() ? GradBuffers::ring : GradBuffers::full;
  way.model.micro_batches = {way.config.accumulation, accumulate};
  return way;
}

/// One model being trained on made-up tokens.
class Run {
 public:
  explicit Run(const Way& way)
      : way_(way),
        gpu_(way.device),
        model_(gpu_, kShape, way.model),
        stream_(gpu_.create_stream("train")),
        engine_(gpu_.device(), way.config),
        rows_(way.config.accumulation * kShape.batch * kShape.row_tokens()),
        losses_(way.config.accumulation) {
    const Groups groups{.decay = engine_.add_group({.lr = 1e-2, .weight_decay = 0.1}),
                        .no_decay = engine_.add_group({.lr = 1e-2})};
    const auto initial = model_.initial_weights(1);
    model_.add_to(engine_, groups, initial);
    engine_.commit();
  }
  ~Run() { gpu_.synchronize(stream_); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Seen train() {
    Seen seen;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      if (const auto move = way_.moves.find(step); move != way_.moves.end()) {
        engine_.set_placement(move->second);
      }
      seen.bits += train_step(step);
    }
    seen.skipped = engine_.stats().steps_skipped;
    seen.moves = engine_.stats().moves;
    return seen;
  }

 private:
  std::string train_step(std::uint64_t step) {
    const std::size_t tokens = rows_.size() / losses_.size();
    for (Token& token : rows_) token = static_cast<Token>(random_.below(kShape.vocab));
    for (std::size_t i = 0; i < losses_.size(); ++i) {
      model_.set_tokens(std::span(rows_).subspan(i * tokens, tokens), stream_);
      model_.forward(engine_, kShape.batch, stream_);
      model_.loss(engine_, kShape.batch, engine_.loss_scale(), &losses_[i], stream_);
      model_.backward(engine_, kShape.batch, stream_);
    }
    const outboard::StepResult result = engine_.step();
    double held_out = 0.0;
    if (step % 2 == 1) {  // while the updates go on
      model_.set_tokens(std::span(rows_).first(tokens), stream_);
      model_.forward(engine_, kShape.batch, stream_);
      model_.loss(engine_, kShape.batch, 0.0, &held_out, stream_);
      gpu_.synchronize(stream_);
    }
    std::array<char, 160> line{};
    // Reading a digest waits for the updates: the last step's tells of all steps.
    std::snprintf(line.data(), line.size(), "%a %a %a %d %a %llx\n",
                  std::accumulate(losses_.begin(), losses_.end(), 0.0), held_out,
                  result.skipped() ? 0.0 : result.grad_norm, static_cast<int>(result.outcome),
                  result.next_loss_scale,
                  static_cast<unsigned long long>(step + 1 == kSteps ? engine_.state_digest() : 0));
    return line.data();
  }

  const Way& way_;
  outboard::sim::Gpu gpu_;
  Model model_;
  outboard::NativeStream stream_;
  outboard::Engine engine_;
  example::Random random_{7};
  std::vector<Token> rows_;
  std::vector<double> losses_;
};

Seen train(const Way& way) {
  return Run(way).train();
}

TEST(GptSeeds, ChangeNoBit) {
  std::map<Kind, std::string> references;
  for (const Kind kind : kKinds) {
    const Seen seen = train(plain_way(kind));
    const bool scales = kind != Kind::unclipped;
    EXPECT_TRUE(scales ? seen.skipped > 0 && seen.skipped < kSteps - 2 : seen.skipped == 0)
        << seen.bits;
    for (const auto& [other, bits] : references) EXPECT_NE(seen.bits, bits);
    references[kind] = seen.bits;
  }
  std::uint64_t open = 0, streamed = 0, moved = 0, chosen = 0;
  const bool all = outboard::testing::for_each_seed(kSeeds, [&](std::uint64_t seed) {
    const Way way = drawn_way(seed);
    auto said = tiny(way.config);
    said.device = way.device;
    const Seen seen = train(way);
    EXPECT_EQ(seen.bits, references[way.kind]) << outboard::testing::describe(said);
    open += way.config.schedule == Schedule::open ? 1 : 0;
    streamed += streams(way) ? 1 : 0;
    moved += way.moves.empty() ? 0 : 1;
    chosen += seen.moves > 0 ? 1 : 0;
  });
  std::printf(
      "%d runs with an open gate, %d that streamed state, %d moved by the trainer, %d by the "
      "engine\n",
      static_cast<int>(open), static_cast<int>(streamed), static_cast<int>(moved),
      static_cast<int>(chosen));
  if (!all) return;
  EXPECT_GT(open, kSeeds / 20);
  EXPECT_GT(streamed, kSeeds / 10);
  EXPECT_GT(moved, kSeeds / 20);
  EXPECT_GT(chosen, kSeeds / 50);
}

}  // namespace
}  // namespace gpt
