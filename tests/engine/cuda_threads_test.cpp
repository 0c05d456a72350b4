// SPDX-License-Identifier: Apache-2.0
// The engine on the CUDA device with real threads: the driver's, the device's own and the workers.

#include <gtest/gtest.h>

#include "engine/cuda_runs.hpp"
#include "engine/drawn_options.hpp"
#include "engine/trajectory.hpp"

namespace outboard::testing {
namespace {

TEST(CudaBits, RealThreadsDoNotEither) {
  TinyOptions plain = small_model();
  plain.config.schedule = Schedule::serial;
  const Trajectory reference = run_trajectory(plain, {.steps = kSteps});
  for (const Placement placement : {Placement::host, Placement::device_resident,
                                    Placement::device_streamed, Placement::fraction}) {
    for (const bool ring : {false, true}) {
      TinyOptions options = small_model();
      options.device = {.memory_bytes = std::size_t{8} << 20};
      options.config.placement = placement;
      if (placement == Placement::fraction) options.config.device_fraction = 0.5;
      round_fraction(options);
      if (ring) options.config.pinned_slots = 2;
      for (int repetition = 0; repetition < 5; ++repetition) {
        EXPECT_EQ(
            first_difference(reference, run_on_cuda(options, {.steps = kSteps, .digests = 0})), "")
            << describe(options);
        expect_nothing_left(describe(options));
      }
    }
  }
}

}  // namespace
}  // namespace outboard::testing
