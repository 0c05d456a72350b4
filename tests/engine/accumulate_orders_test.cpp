// SPDX-License-Identifier: Apache-2.0
// Accumulate::host in virtual time: whatever overtakes what, each sum holds its own gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint16_t kTwo = 0x4000;

Config summing(std::uint32_t accumulation) {
  Config config;
  config.accumulate = Accumulate::host;
  config.accumulation = accumulation;
  config.bucket_bytes = 8192;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  config.host.threads_per_node = 1;
  return config;
}

void fill(ManualTrainer& trainer, void* address, std::size_t elems, std::uint16_t bits) {
  trainer.gpu.launch(trainer.stream, {}, [=](sim::KernelView& view) {
    for (std::uint16_t& value : view.as<std::uint16_t>(address, elems)) value = bits;
  });
}

struct Outcome {
  double grad_norm = 0.0;
  std::uint64_t digest = 0;
};

// --- buffers that are used again ----------------------------------------------------------------

/// One parameter in six buckets on a slow and a fast node, two micro-batches of ones.
constexpr std::size_t kElems = 6 * 4096;

struct Reuse {
  std::uint64_t seed = 0;
  bool overwrite = false;  ///< the second gradient, as soon as it is taken
  bool slow_first = true;
};

Outcome two_micro_batches(const Reuse& reuse) {
  sim::Options device = virtual_device(reuse.seed);
  device.rates.link_down_bytes_per_s = 1e9;
  device.rates.host_elems_per_s = {reuse.slow_first ? 1e6 : 1e9, reuse.slow_first ? 1e9 : 1e6};
  device.max_random_delay = microseconds(reuse.seed % 2 == 0 ? 0 : 20);
  Config config = summing(2);
  config.host.synthetic_topology = "numa:2 core:1 pu:1";
  ManualTrainer trainer(config, device);
  const GroupId group = trainer.engine->add_group({});
  const ParameterId p = trainer.add("p", std::vector<float>(kElems, 1.0F), group);
  trainer.engine->commit();
  void* const first = trainer.make(std::vector<float>(kElems, 1.0F));
  void* const second = trainer.make(std::vector<float>(kElems, 1.0F));
  trainer.wait_all();
  trainer.engine->gradient_ready(p, first, trainer.stream);
  trainer.engine->gradient_ready(p, second, trainer.stream);
  if (reuse.overwrite) {
    trainer.engine->wait_gradient_taken(p, trainer.stream);
    fill(trainer, second, kElems, kTwo);
  }
  const StepResult result = trainer.engine->step();
  return {result.grad_norm, trainer.engine->state_digest()};
}

TEST(HostAccumulationOrder, ATakenGradientMayBeOverwrittenInEveryBucket) {
  const double norm = std::sqrt(static_cast<double>(kElems));  // of the mean, all ones
  const Outcome expected = two_micro_batches({});
  EXPECT_DOUBLE_EQ(expected.grad_norm, norm);
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    for (const bool slow_first : {true, false}) {
      const Outcome seen = two_micro_batches({seed, true, slow_first});
      EXPECT_DOUBLE_EQ(seen.grad_norm, norm) << "seed " << seed;
      EXPECT_EQ(seen.digest, expected.digest) << "seed " << seed;
    }
  }
}

// --- sums that the update still reads -----------------------------------------------------------

/// Two steps; the second gradient comes on a stream that nothing orders behind the first update.
Outcome independent_streams(Placement placement, std::uint64_t seed) {
  constexpr std::size_t elems = 4 * 4096;
  sim::Options device = virtual_device(seed);
  device.rates.device_bytes_per_s = 1e7;
  device.max_random_delay = microseconds(seed % 2 == 0 ? 0 : 500);
  Config config = summing(1);
  config.placement = placement;
  ManualTrainer trainer(config, device);
  const NativeStream other = trainer.gpu.create_stream("other");
  const GroupId group = trainer.engine->add_group({});
  const ParameterId p = trainer.add("p", std::vector<float>(elems, 1.0F), group);
  trainer.engine->commit();
  void* const first = trainer.make(std::vector<float>(elems, 1.0F));
  void* const second = trainer.make(std::vector<float>(elems, 2.0F));
  trainer.wait_all();
  trainer.engine->gradient_ready(p, first, trainer.stream);
  trainer.gpu.synchronize(trainer.stream);
  // The update is ordered behind its readers: this one holds it back.
  trainer.gpu.launch(trainer.stream, milliseconds(50), [](sim::KernelView&) {});
  trainer.engine->step();
  trainer.wait_all();
  trainer.engine->gradient_ready(p, second, other);
  const StepResult result = trainer.engine->step();
  const Outcome out{result.grad_norm, trainer.engine->state_digest()};
  trainer.engine.reset();
  trainer.gpu.destroy_stream(other);
  return out;
}

TEST(HostAccumulationOrder, ANewSumWaitsForTheUpdateThatReadsTheOldOne) {
  const Outcome expected = independent_streams(Placement::host, 0);
  EXPECT_DOUBLE_EQ(expected.grad_norm, 2.0 * std::sqrt(4.0 * 4096.0));
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const Placement placement : {Placement::device_resident, Placement::host}) {
      const Outcome seen = independent_streams(placement, seed);
      EXPECT_DOUBLE_EQ(seen.grad_norm, expected.grad_norm) << "seed " << seed;
      EXPECT_EQ(seen.digest, expected.digest) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace outboard::testing
