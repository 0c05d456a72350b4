// SPDX-License-Identifier: Apache-2.0
/// What `outboard plan` is asked, and what it answers: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/model_shape.hpp"
#include "outboard/planning.hpp"
#include "outboard/timeline.hpp"

namespace outboard::cli {

enum class Known : std::uint8_t {
  given,     ///< on the command line
  measured,  ///< on this machine, just now
  assumed,   ///< neither: a usual value
};
/// "given", "measured" or "assumed".
[[nodiscard]] const char* name_of(Known known);

struct Rate {
  double value = 0.0;
  Known known = Known::assumed;
};

struct PlanRequest {
  ModelShape shape;
  DType dtype = DType::f16;                     ///< of weights and gradients, activations too
  std::uint64_t tokens = 8192;                  ///< per step, all micro-batches together
  std::uint64_t micro_batches = 1;              ///< of alike many tokens
  Accumulate accumulate = Accumulate::trainer;  ///< who adds up their gradients
  std::uint64_t context = 2048;                 ///< tokens that each one attends to
  std::uint64_t device_bytes = std::uint64_t{24} << 30;
  std::uint64_t host_bytes = 0;
  std::uint32_t nodes = 1;
  Rate link;                       ///< bytes per second, each way
  Rate host_update;                ///< parameters per second, all nodes together
  Rate compute;                    ///< FLOP per second that the trainer reaches
  Rate device_memory;              ///< bytes per second of the device's own memory
  Rate disk{2e9, Known::assumed};  ///< bytes per second of what a checkpoint is written to
  std::uint64_t snapshot_bytes = std::uint64_t{256} << 20;  ///< Config's
  bool checkpointing = true;  ///< keep each layer's input only, compute the rest again
  bool gradient_ring = true;  ///< gradients of two layers at a time, where that can be
  bool whole_logits = true;   ///< logits and their FP32 gradient are kept
  std::optional<std::uint64_t> activation_bytes;  ///< instead of the estimate
  std::uint64_t bucket_bytes = std::uint64_t{4} << 20;
  Schedule schedule = Schedule::exact;
  double device_fraction = 0.0;  ///< of the state
  std::string json;              ///< a file, "-" for standard output, "" for none
  std::string html;              ///< a file, "" for none
  std::string trace;             ///< a file, "" for none
};

struct Bytes {
  std::string purpose;
  std::uint64_t bytes = 0;
};
[[nodiscard]] std::uint64_t sum_of(const std::vector<Bytes>& entries);

/// Device and host memory of one model.
struct MemoryPlan {
  std::vector<Bytes> device, pinned, pageable;
  std::uint64_t without_offload = 0;  ///< on the device, with all state there
  std::uint64_t checkpoint = 0;       ///< the state alone
  [[nodiscard]] std::uint64_t host() const { return sum_of(pinned) + sum_of(pageable); }
};

struct SpeedRow {
  std::uint64_t tokens = 0;
  double step_us = 0.0;
  double without_offload_us = 0.0;
  [[nodiscard]] double fraction() const { return without_offload_us / step_us; }
};

struct JudgedStep : PlannedStep {
  /// If no update waited for the norm of all gradients; of schedules other than exact: step_us.
  double without_gate_us = 0.0;
};

/// A save beside training that begins right after a step.
struct SavePlan {
  double save_us = 0.0;            ///< until it is written, if nothing else holds up the disk
  std::uint64_t copied_bytes = 0;  ///< that the next step's update would overtake
  double copy_us = 0.0;  ///< what their copy takes of the host's memory, beside the update
  double wait_us = 0.0;  ///< by which that update is held back: no room for a copy
};

struct PlanReport {
  PlanRequest request;
  std::uint64_t parameters = 0;
  MemoryPlan memory;
  JudgedStep host;                  ///< all state on the host
  JudgedStep asked;                 ///< with the asked share of it on the device
  JudgedStep best;                  ///< some of it on the device, in what is free there
  std::uint64_t free_bytes = 0;     ///< of the device, were there all gradients and no state
  double without_offload_us = 0.0;  ///< were there room for everything
  std::vector<SpeedRow> speed;
  SavePlan save;                                ///< of the state, with the step as asked
  std::optional<std::uint64_t> tokens_to_hide;  ///< for 95 % of the speed without offload
  std::uint64_t largest = 0;                    ///< parameters that fit, by usual proportions
  std::uint64_t largest_without_offload = 0;
  std::string largest_limit;  ///< "device memory" or "host memory"
};

/// FP32 master and two moments of one parameter.
inline constexpr std::uint64_t kStateBytes = 12;

/// Whether the engine adds up the micro-batches' gradients.
[[nodiscard]] inline bool has_sums(const PlanRequest& request) {
  return request.accumulate == Accumulate::host;
}
/// The engine's settings that a plan is for.
[[nodiscard]] Config config_of(const PlanRequest& request);
/// Where the state is as asked.
[[nodiscard]] PlannedPlacement asked_placement(const PlanRequest& request);
/// "exact", "blocking", ... @throws UsageError listing what there is.
[[nodiscard]] Schedule schedule_named(const std::string& name);
[[nodiscard]] const char* name_of(Schedule schedule);
/// @throws Error as plan_step() and plan_memory() do.
[[nodiscard]] PlanReport make_plan_report(const PlanRequest& request);
[[nodiscard]] MemoryPlan plan_bytes(const ModelShape& shape, const PlanRequest& request);
/// The step at so many tokens. Formulas: docs/planning.md.
[[nodiscard]] PlannedModel plan_work(const PlanRequest& request, std::uint64_t tokens);
/// `state_bytes` to the request's disk, with steps of `step_us`.
[[nodiscard]] SavePlan plan_save(const PlanRequest& request, std::uint64_t state_bytes,
                                 double step_us);
/// What makes the step longer than its compute, in words.
[[nodiscard]] std::string limit_of(const JudgedStep& step);

[[nodiscard]] std::string plan_text(const PlanReport& report);
[[nodiscard]] std::string plan_json(const PlanReport& report);
/// The figures as text, and a chart of the step for each of plan_timelines().
[[nodiscard]] std::string plan_html(const PlanReport& report);
/// The steps with the state as asked, placed best, and with all of it on the device.
[[nodiscard]] std::vector<Timeline> plan_timelines(const PlanRequest& request,
                                                   std::uint64_t free_bytes);

/// What the update moves for one parameter: gradient and weight, FP32 state in and out.
[[nodiscard]] double update_bytes(DType dtype);
/// "24GiB", "800MB" or a number of bytes. @throws UsageError quoting what is none.
[[nodiscard]] std::uint64_t parse_bytes(const std::string& text);
/// 16-bit parameters per second that the engine updates here, all nodes together. Takes about a
/// second and 300 MB.
[[nodiscard]] double measure_host_update();

}  // namespace outboard::cli
