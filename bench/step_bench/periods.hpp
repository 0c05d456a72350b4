// SPDX-License-Identifier: Apache-2.0
/// From what a device recorded to the time of its steps, and what each waited for.
#pragma once

#include <cstdint>
#include <vector>

#include "outboard/timeline.hpp"
#include "step_bench/step_trainer.hpp"
#include "step_bench/ways.hpp"
#include "step_bench/workload.hpp"

namespace outboard::step_bench {

/// Time in which the device does none of the trainer's work, by what it waits for. Microseconds.
struct Exposed {
  double gradients = 0.0;  ///< copies of gradients to the host
  double gate = 0.0;       ///< the scalars that decide about the step
  double update = 0.0;     ///< updates on the host
  double weights = 0.0;    ///< copies of weights to the device
  double device = 0.0;     ///< the engine's own kernels
  double host = 0.0;       ///< none of these: the host has queued nothing. 0 in virtual time
  [[nodiscard]] double total() const { return gradients + gate + update + weights + device + host; }
};

/// From the end of one forward to the end of the next. Microseconds.
struct Period {
  double step = 0.0;
  double forward = 0.0;   ///< its kernels
  double backward = 0.0;  ///< its kernels
  Exposed exposed;
  double down = 0.0, up = 0.0;  ///< the link is busy
  double update = 0.0;          ///< the busiest node is busy
  double device = 0.0;          ///< the engine's kernels run
  std::uint64_t bytes_down = 0, bytes_up = 0;
};

/// What one step recorded, classified: kinds, and names with the layer or the bucket.
struct StepSpans {
  Timeline timeline;  ///< of one period, from 0
  Period period;
};

/// One entry for each step of the turns in `recording`.
[[nodiscard]] std::vector<StepSpans> split_into_periods(const Timeline& recording,
                                                        const Workload& workload, const Way& way,
                                                        const std::vector<LayerMemory>& layers);

}  // namespace outboard::step_bench
