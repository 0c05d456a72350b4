// SPDX-License-Identifier: Apache-2.0
// Several streams that give alternating slices of one bucket, in virtual time: whatever their
// delays and the order of their calls, no slice is lost or stale. Streams of different producers
// are ordered by nothing but the engine.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/drawn_options.hpp"
#include "engine/trajectory.hpp"
#include "plan/model_layout.hpp"
#include "support/seeds.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSeeds = 1000;
constexpr std::uint64_t kSteps = 3;
constexpr std::uint32_t kProducers = 2;

/// What decides the bits.
struct Model {
  bool gated = true;         ///< clips and scales dynamically
  std::uint32_t passes = 0;  ///< that the engine adds up
  auto operator<=>(const Model&) const = default;
};

std::uint32_t producer_of(std::uint32_t parameter) {
  return parameter % kProducers;
}

/// Buckets of packed slices, of slices that are not packed, and of parts of one tensor.
TinyOptions options_of(const Model& model) {
  TinyOptions options;
  options.device = virtual_device(0);
  options.device.memory_bytes = std::size_t{2} << 20;
  options.config.bucket_bytes = 8192;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.config.loss_scaling = {.dynamic = model.gated, .initial_scale = 64.0};
  if (model.gated) options.config.max_grad_norm = 1.0;
  options.groups = {AdamW{.lr = 1e-2, .weight_decay = 0.1}};
  const std::array<std::uint64_t, 12> sizes = {5000, 300, 120,  130, 140,  150,
                                               160,  170, 5000, 310, 9000, 2000};
  add_parameters(options, sizes);
  // A packed range that lacks a slice.
  options.has_gradient = [](std::uint64_t step, std::uint32_t i) { return i != 4 || step != 1; };
  options.digest = false;
  options.max_steps = 8;
  if (model.passes == 0) return options;
  options.config.accumulate = Accumulate::host;
  options.config.accumulation = options.passes = model.passes;
  return options;
}

TEST(Producers, FillBucketsOfEveryKind) {
  const TinyOptions options = options_of({});
  std::vector<plan::ParameterShape> shapes;
  for (const TinyParameter& parameter : options.parameters) {
    shapes.push_back({parameter.elems, parameter.dtype});
  }
  const std::array<double, 1> one_node = {1.0};
  const auto layout = plan::make_layout(shapes, options.config.bucket_bytes, one_node);
  std::uint32_t packed = 0;
  std::uint32_t unpacked = 0;
  for (const plan::Bucket& bucket : layout.buckets) {
    std::array<std::array<std::uint32_t, kProducers>, 2> slices{};  // [packed][producer]
    for (std::uint32_t k = 0; k < bucket.segments; ++k) {
      const plan::Segment& segment = layout.segments[bucket.first_segment + k];
      slices[bucket.packs(segment) ? 1 : 0][producer_of(segment.parameter)] += 1;
    }
    packed += slices[1][0] > 1 && slices[1][1] > 1 ? 1 : 0;
    unpacked += slices[0][0] > 0 && slices[0][1] > 0 ? 1 : 0;
  }
  EXPECT_GE(packed, 1U);
  EXPECT_GE(unpacked, 1U);
  EXPECT_EQ(layout.parameters[10].count, 3U);
}

/// Two streams, each with the forward and the backward of its own parameters.
class Producers {
 public:
  Producers(TinyTrainer& trainer, std::uint64_t seed) : trainer_(trainer), draw_(seed ^ 0x5EED) {
    for (NativeStream& stream : streams_) stream = trainer_.gpu().create_stream("producer");
    given_.assign(trainer_.options().parameters.size(), false);
  }
  ~Producers() {
    for (const NativeStream stream : streams_) trainer_.gpu().destroy_stream(stream);
  }
  Producers(const Producers&) = delete;
  Producers& operator=(const Producers&) = delete;

  void step() {
    const auto passes = trainer_.options().passes;
    for (std::uint32_t pass = 0; pass < passes; ++pass) {
      // Each producer's own order is fixed within the pass; how they interleave is not.
      std::array<std::vector<std::uint32_t>, kProducers> left = {order(0), order(1)};
      while (!left[0].empty() || !left[1].empty()) {
        const std::uint64_t producer = left[0].empty() ? 1 : left[1].empty() ? 0 : draw_.below(2);
        give(left.at(producer).back());
        left.at(producer).pop_back();
      }
    }
    trainer_.finish();
  }
  [[nodiscard]] NativeStream stream(std::uint32_t parameter) const {
    return streams_.at(producer_of(parameter));
  }

 private:
  /// A producer's parameters, from a drawn one on and round.
  std::vector<std::uint32_t> order(std::uint32_t producer) {
    std::vector<std::uint32_t> out;
    const auto count = static_cast<std::uint32_t>(given_.size()) / kProducers;
    const auto start = static_cast<std::uint32_t>(draw_.below(count));
    for (std::uint32_t k = 0; k < count; ++k) {
      const std::uint32_t parameter = (start + k) % count * kProducers + producer;
      if (trainer_.options().has_gradient(trainer_.steps(), parameter)) out.push_back(parameter);
    }
    return out;
  }
  void give(std::uint32_t i) {
    Engine& engine = trainer_.engine();
    engine.wait(trainer_.id(i), stream(i));
    if (given_[i]) engine.wait_gradient_taken(trainer_.id(i), stream(i));
    given_[i] = true;
    launch_backward(i);
    engine.gradient_ready(trainer_.id(i), trainer_.gradient(i), stream(i));
    if (reads_in_place(trainer_.options().config) || draw_.coin()) return;
    engine.wait_gradient_taken(trainer_.id(i), stream(i));
    launch_garbage(i);
  }
  void launch_backward(std::uint32_t i) {
    const auto elems = static_cast<std::size_t>(trainer_.options().parameters[i].elems);
    const auto scale = static_cast<float>(trainer_.engine().loss_scale());
    const auto kernel = [=, step = trainer_.steps(), weight = trainer_.weight(i),
                         gradient = trainer_.gradient(i)](sim::KernelView& view) {
      const auto weights = view.as<const std::uint16_t>(weight, elems);
      const auto out = view.as<std::uint16_t>(gradient, elems);
      for (std::size_t e = 0; e < elems; ++e) {
        out[e] = half_from_float(default_gradient({step, i, e, half_to_float(weights[e])}) * scale);
      }
    };
    trainer_.gpu().launch(stream(i), draw_.time() / 10, kernel, "produce");
  }
  void launch_garbage(std::uint32_t i) {
    const auto elems = static_cast<std::size_t>(trainer_.options().parameters[i].elems);
    const auto kernel = [=, gradient = trainer_.gradient(i)](sim::KernelView& view) {
      for (std::uint16_t& half : view.as<std::uint16_t>(gradient, elems)) half = 0x7BFF;
    };
    trainer_.gpu().launch(stream(i), sim::Duration(0), kernel, "spoil");
  }

  TinyTrainer& trainer_;
  Draw draw_;
  std::array<NativeStream, kProducers> streams_;
  std::vector<bool> given_;
};

Model draw_model(Draw& draw) {
  return {.gated = draw.coin(), .passes = draw.below(4) == 0 ? 2U : 0U};
}

TinyOptions draw_options(Draw& draw, const Model& model, std::uint64_t seed) {
  TinyOptions options = options_of(model);
  options.device.seed = seed;
  draw_device(draw, options.device);
  const Accumulate accumulate = options.config.accumulate;
  const std::size_t bucket_bytes = options.config.bucket_bytes;
  draw_config(draw, options.config);
  options.config.accumulate = accumulate;
  options.config.bucket_bytes = bucket_bytes;
  round_fraction(options);
  const std::array<Schedule, 4> schedules = {Schedule::exact, Schedule::exact, Schedule::blocking,
                                             model.gated ? Schedule::serial : Schedule::open};
  options.config.schedule = schedules.at(draw.below(schedules.size()));
  return options;
}

/// Digests after each step, given on one stream, in one order.
std::vector<std::uint64_t> reference_of(const Model& model) {
  TinyTrainer trainer(options_of(model));
  trainer.start();
  std::vector<std::uint64_t> out;
  while (trainer.steps() < kSteps) {
    trainer.step();
    out.push_back(trainer.engine().state_digest());
  }
  return out;
}

TEST(Producers, LoseNoSliceOfAnyBucket) {
  std::map<Model, std::vector<std::uint64_t>> references;
  for_each_seed(kSeeds, [&](std::uint64_t seed) {
    Draw draw(seed);
    const Model model = draw_model(draw);
    std::vector<std::uint64_t>& reference = references[model];
    if (reference.empty()) reference = reference_of(model);
    TinyTrainer trainer(draw_options(draw, model, seed));
    trainer.start();
    Producers producers(trainer, seed);
    for (std::uint64_t s = 0; s < kSteps; ++s) {
      producers.step();
      if (s + 1 < kSteps && draw.below(3) != 0) continue;
      EXPECT_EQ(trainer.engine().state_digest(), reference[s])
          << "step " << s << ": " << describe(trainer.options());
    }
  });
}

// --- a producer that is late ---------------------------------------------------------------------

constexpr sim::Duration kLate = std::chrono::milliseconds(100);

/// Six buckets of one parameter each; odd ones are the late producer's.
TinyOptions late_options(Schedule schedule, bool ring) {
  TinyOptions options = options_of({.gated = false});
  options.config.schedule = schedule;
  if (ring) options.config.pinned_slots = 2;
  options.device.rates.link_down_bytes_per_s = options.device.rates.link_up_bytes_per_s = 1e9;
  options.device.rates.host_elems_per_s = {1e9};
  options.parameters.clear();
  add_parameters(options, std::vector<std::uint64_t>(6, 4096));
  return options;
}

struct LateStep {
  std::array<bool, 6> refreshed{};  ///< when the late gradient came
  sim::Duration taken{0};           ///< when the buffers of those given before were free again
  std::uint64_t digest = 0;
};

/// Gives all gradients of the one producer, then one that is late of the other.
LateStep late_step(const TinyOptions& options) {
  TinyTrainer trainer(options);
  trainer.start();
  sim::Gpu& gpu = trainer.gpu();
  const NativeStream late = gpu.create_stream("late");
  LateStep out;
  std::vector<std::vector<std::uint16_t>> before;
  for (std::uint32_t i = 0; i < 6; ++i) before.push_back(trainer.weight_bits(i));
  for (std::uint32_t i = 0; i < 6; ++i) trainer.engine().wait(trainer.id(i), late);
  for (const std::uint32_t i : {4U, 2U, 0U}) trainer.give_gradient(i);
  const sim::Duration start = gpu.now();
  const auto look = [&](sim::KernelView& view) {
    for (std::uint32_t i = 0; i < 6; ++i) {
      const auto now = view.as<const std::uint16_t>(trainer.weight(i), 4096);
      out.refreshed[i] = !std::equal(now.begin(), now.end(), before[i].begin());
    }
    for (std::uint16_t& half : view.as<std::uint16_t>(trainer.gradient(3), 4096)) half = 0x3C00;
  };
  gpu.launch(
      late, kLate, [](sim::KernelView&) {}, "late");
  gpu.launch(late, sim::Duration(0), look, "look");
  trainer.engine().gradient_ready(trainer.id(3), trainer.gradient(3), late);
  for (const std::uint32_t i : {4U, 2U, 0U}) {
    trainer.engine().wait_gradient_taken(trainer.id(i), trainer.writer());
  }
  const auto mark = [&](sim::KernelView&) { out.taken = gpu.now() - start; };
  gpu.launch(trainer.writer(), sim::Duration(0), mark, "mark");
  trainer.finish();
  out.digest = trainer.engine().state_digest();
  gpu.synchronize();
  gpu.destroy_stream(late);
  return out;
}

TEST(Producers, ThatAreLateHoldUpNothingThatWasGivenBefore) {
  const std::uint64_t digest = late_step(late_options(Schedule::serial, false)).digest;
  for (const bool ring : {false, true}) {
    for (const Schedule schedule : {Schedule::exact, Schedule::open}) {
      SCOPED_TRACE(std::string(name_of(schedule)) + (ring ? " ring" : ""));
      const LateStep seen = late_step(late_options(schedule, ring));
      EXPECT_LT(seen.taken, kLate / 2);
      EXPECT_EQ(seen.digest, digest);
      const bool open = schedule == Schedule::open;
      EXPECT_EQ(seen.refreshed, (std::array<bool, 6>{open, false, open, false, open, false}));
    }
  }
}

}  // namespace
}  // namespace outboard::testing
