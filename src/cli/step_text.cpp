// SPDX-License-Identifier: Apache-2.0
// Measured steps as text of at most 100 columns.
#include "cli/bench_step.hpp"
#include "cli/report.hpp"

namespace outboard::cli {
namespace {

using step_bench::Clock;
using step_bench::Exposed;
using step_bench::StepBench;
using step_bench::WayResult;
using step_bench::Workload;

std::string head(const StepBench& bench) {
  const Workload& w = bench.workload;
  std::string text = print(
      "model    %u layers of %s parameters in %zu buckets; forward %.3f ms, backward %.3f ms\n",
      w.layers, grouped(w.params).c_str(), bench.bound.buckets, bench.bound.forward_ns * 1e-6,
      bench.bound.backward_ns * 1e-6);
  text += print(
      "machine  link %.1f GB/s down, %.1f up; host %.0f Mparam/s on %u node%s; device memory "
      "%.0f GB/s\n",
      w.link_down_bytes_per_s * 1e-9, w.link_up_bytes_per_s * 1e-9, w.host_params_per_s * 1e-6,
      w.nodes, w.nodes == 1 ? "" : "s", w.device_bytes_per_s * 1e-9);
  return text + print("alone    gradients down %.3f ms, update %.3f ms, weights up %.3f ms\n",
                      bench.bound.down_ns * 1e-6, bench.bound.update_ns * 1e-6,
                      bench.bound.upload_ns * 1e-6);
}

std::string times(const WayResult& r) {
  return print("  %-12s %10.3f %10.3f %10.4f %9.1f %% %10.3f %+9.3f %%\n", r.way->name,
               r.mean.step * 1e-3, r.bound_us * 1e-3, r.ratio(), 100.0 * r.overlap(),
               r.predicted.step_us * 1e-3, 100.0 * r.prediction_error());
}

std::string exposed(const WayResult& r) {
  const Exposed& e = r.mean.exposed;
  return print("  %-12s %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f %9.1f %9.1f\n", r.way->name,
               e.gradients * 1e-3, e.gate * 1e-3, e.update * 1e-3, e.weights * 1e-3,
               e.device * 1e-3, e.host * 1e-3, static_cast<double>(r.mean.bytes_down) * 1e-6,
               static_cast<double>(r.mean.bytes_up) * 1e-6);
}

std::string block(const StepBench& bench, Clock clock) {
  std::string first, second;
  std::size_t steps = 0;
  for (const WayResult& r : bench.results) {
    if (r.clock != clock) continue;
    first += times(r);
    second += exposed(r);
    steps = r.steps_us.size();
  }
  if (first.empty()) return "";
  const bool real = clock == Clock::real;
  return print("%s time, mean of %zu steps%s\n", real ? "real" : "virtual", steps,
               real ? "; bounds and predictions at the rate that the host had" : "") +
         print("  %-12s %10s %10s %10s %11s %10s %11s\n", "", "step ms", "bound ms", "ratio",
               "hidden", "pred. ms", "error") +
         first +
         print("  %-12s %9s %9s %9s %9s %9s %9s %9s %9s\n", "exposed, ms", "gradients", "gate",
               "update", "weights", "device", "host", "MB down", "MB up") +
         second;
}

}  // namespace

std::string step_text(const StepBench& bench) {
  std::string text = head(bench) + block(bench, Clock::virtual_time) + block(bench, Clock::real);
  text +=
      "ratio: the longest step over its bound\n"
      "hidden: share of what link, host and device do for the engine while the trainer's kernels "
      "run\n";
  for (const WayResult& r : bench.results) {
    if (!bench.same_bits()) {
      text +=
          print("  %-12s digest %016llx\n", r.way->name, static_cast<unsigned long long>(r.digest));
    }
  }
  if (bench.same_bits()) text += "every way left the same bits\n";
  return text;
}

}  // namespace outboard::cli
