// SPDX-License-Identifier: Apache-2.0
/// A step as the simulator sees it: the layout and the trainer's times joined into flat tables.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/model_layout.hpp"

namespace outboard::plan {

struct StepModel {
  struct Bucket {
    std::uint64_t elems = 0;                 ///< updated, in elements of AdamW
    std::uint64_t device_elems = 0;          ///< likewise where the device does it
    std::uint64_t bytes = 0;                 ///< of its gradients, and of its weights
    std::uint64_t padded_elems = 0;          ///< what its state takes
    std::uint64_t largest_padded_elems = 0;  ///< of one of the buckets in it, if it is a group
    std::uint32_t copies = 0;                ///< copies that one way across the link takes
    std::uint32_t kernels = 0;               ///< of an update on the device
    std::uint32_t unpacks = 0;               ///< kernels that spread packed weights
    std::uint64_t packed_elems = 0;          ///< what they spread
    std::uint64_t packed_bytes = 0;          ///< of `bytes`; they take `unpacks` of the copies
    std::uint32_t gradients = 0;             ///< entries of `gradients` with this bucket
    std::uint32_t unit = 0;                  ///< buckets of one unit have one home
  };
  /// What one piece of backward completes of one bucket. All that the bucket packs leaves with the
  /// last piece of it.
  struct Gradient {
    std::uint32_t bucket = 0;
    std::uint32_t copies = 1;  ///< that it sets off
    std::uint64_t bytes = 0;
    std::uint64_t packed_elems = 0;  ///< written once more on the device
    std::uint64_t elems = 0;
    std::uint32_t parameters = 0;  ///< that begin in it: the kernels that a sum on the device takes
    std::uint32_t piece = 0;       ///< of backward
  };
  struct Backward {
    double us = 0.0;
    std::uint32_t first_gradient = 0;
    std::uint32_t gradients = 0;
    std::uint32_t norms = 0;       ///< parameters that it completes
    std::uint64_t norm_elems = 0;  ///< their elements
  };
  struct Forward {
    double us = 0.0;
    std::uint32_t first_need = 0;
    std::uint32_t needs = 0;
  };

  std::vector<Bucket> buckets;  ///< in forward order
  std::vector<Gradient> gradients;
  std::vector<Backward> backward;
  std::vector<std::uint32_t> needs;  ///< buckets that pieces of forward wait for
  std::vector<Forward> forward;
  double forward_us = 0.0;          ///< of one micro-batch
  double backward_us = 0.0;         ///< of one micro-batch
  std::uint32_t micro_batches = 0;  ///< as in StepTimes
  std::uint32_t ring_slots = 1;
  std::uint64_t parameters = 0;  ///< whose scalars the gate copies to the host
  std::uint64_t state_bytes_per_elem = kStateBytesPerElem;  ///< with its sum, if there is one
  /// What of it is sent to the device and back: a sum stays there.
  [[nodiscard]] std::uint64_t streamed_bytes_per_elem() const {
    return state_bytes_per_elem - sum_bytes_per_elem();
  }
  [[nodiscard]] std::uint64_t sum_bytes_per_elem() const {
    return micro_batches > 0 ? sizeof(float) : 0;
  }
};

/// Each parameter must have its gradient completed by `times.backward`. A bucket that no piece of
/// forward names is needed by the last one: every refresh is waited for before the next gradient.
/// @throws Error{invalid_argument} for a time that is negative or not finite, a parameter that the
/// layout does not have or that no piece of backward completes.
[[nodiscard]] StepModel make_step_model(const ModelLayout& layout, const StepTimes& times);

/// Buckets that are taken for one. Numbers are in forward order, without gaps.
struct Grouping {
  std::vector<std::uint32_t> group_of;    ///< by bucket
  std::vector<std::uint32_t> stretch_of;  ///< by group: those side by side, one for each node
};

/// The same step with a bucket for each group. Neighbouring pieces of work that concern the same
/// stretches become one.
[[nodiscard]] StepModel coarsen(const StepModel& model, const Grouping& grouping);

}  // namespace outboard::plan
