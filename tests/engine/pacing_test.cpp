// SPDX-License-Identifier: Apache-2.0
// HostOptions::update_share: nodes that rest between buckets, in virtual time and on threads.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "engine/trajectory.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint32_t kLayers = 8;

/// Parameters of one bucket each; an update takes 1 ms, an upload 100 us.
TinyOptions paced(double share) {
  TinyOptions options;
  options.device = virtual_device(3);
  options.device.rates.host_elems_per_s = {4096.0 * 1000};
  options.device.rates.link_up_bytes_per_s = 8192.0 * 10000;
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.bucket_bytes = 8192;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.config.host.update_share = share;
  add_parameters(options, std::vector<std::uint64_t>(kLayers, 4096));
  options.digest = false;
  return options;
}

struct Paced {
  std::vector<TimelineSpan> updates, uploads;
  double busy_us = 0.0;
  std::uint64_t digest = 0;
};

Paced one_step(const TinyOptions& options) {
  TinyTrainer trainer(options);
  trainer.start();
  trainer.gpu().start_recording(1000);
  trainer.forward();
  trainer.backward();
  trainer.gpu().synchronize();  // all gradients are there: buckets go in forward order
  (void)trainer.finish();
  trainer.engine().synchronize();
  Paced paced;
  for (const TimelineSpan& span : trainer.gpu().recording().spans) {
    if (span.row == TimelineRow::node && span.kind == SpanKind::update) {
      paced.updates.push_back(span);
    }
    if (span.row == TimelineRow::link_up) paced.uploads.push_back(span);
  }
  paced.busy_us = trainer.engine().stats().update_busy_us;
  paced.digest = trainer.engine().state_digest();
  return paced;
}

// Refreshed weights cross the link while the next bucket would be updated.
TEST(Pacing, ANodeUpdatesForItsShareOfTheTimeAndCopiesEndWithTheirBuckets) {
  const Paced whole = one_step(paced(1.0));
  for (const double share : {1.0, 0.8, 0.5, 0.1}) {
    const Paced found = one_step(paced(share));
    ASSERT_EQ(found.updates.size(), kLayers);
    ASSERT_EQ(found.uploads.size(), kLayers);
    const double first = found.updates[0].start_us;
    for (std::uint32_t i = 0; i < kLayers; ++i) {
      const double start = first + 1000.0 * i / share;
      EXPECT_NEAR(found.updates[i].start_us, start, 0.01) << "bucket " << i << ", share " << share;
      EXPECT_NEAR(found.updates[i].end_us, start + 1000.0, 0.01);
      EXPECT_NEAR(found.uploads[i].end_us, start + 1100.0, 0.01);
    }
    EXPECT_DOUBLE_EQ(found.busy_us, whole.busy_us) << "rests are no work";
    EXPECT_EQ(found.digest, whole.digest) << "the bits are the same";
  }
}

TEST(Pacing, ThreadsRestAndTheEngineEndsAllTheSame) {
  std::uint64_t digest = 0;
  for (const double share : {1.0, 0.3}) {
    TinyOptions options = paced(share);
    options.device = {};
    options.config.host.synthetic_topology = "numa:2 core:2 pu:1";
    TinyTrainer trainer(options);
    trainer.start();
    trainer.run(3);
    const std::uint64_t found = trainer.engine().state_digest();
    if (share == 1.0) digest = found;
    EXPECT_EQ(found, digest);
    const bool said =
        trainer.engine().describe().find("at most 0.3 of the time") != std::string::npos;
    EXPECT_EQ(said, share < 1.0);
  }
}

TEST(Pacing, SharesOutOfRangeAreRefused) {
  for (const double share : {0.0, -1.0, 0.001, 1.5}) {
    TinyTrainer trainer(paced(share));
    EXPECT_THROW(trainer.start(), Error) << share;
  }
}

}  // namespace
}  // namespace outboard::testing
