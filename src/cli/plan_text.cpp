// SPDX-License-Identifier: Apache-2.0
// A plan as text of at most 100 columns.
#include <cmath>

#include "cli/plan_request.hpp"
#include "cli/report.hpp"

namespace outboard::cli {
namespace {

constexpr double kGiB = 1073741824.0;

std::string line(const std::string& what, std::uint64_t bytes, std::uint64_t parameters) {
  const auto value = static_cast<double>(bytes);
  return print("  %-34s %12.3f GiB %9.3f B/param\n", what.c_str(), value / kGiB,
               value / static_cast<double>(parameters));
}

std::string block(const char* head, const std::vector<Bytes>& entries, std::uint64_t parameters) {
  std::string text = std::string(head) + "\n";
  for (const Bytes& entry : entries) text += line(entry.purpose, entry.bytes, parameters);
  return text + line("total", sum_of(entries), parameters);
}

std::string rate(const char* what, double value, const char* unit, const Rate& from,
                 const char* option) {
  std::string text = print("  %-34s %12.1f %-14s %s", what, value, unit, name_of(from.known));
  if (from.known == Known::measured) text += " here";
  if (from.known == Known::assumed) text += std::string("; give ") + option;
  return text + "\n";
}

std::string head(const PlanReport& report) {
  const PlanRequest& r = report.request;
  std::string text = "model: " + (r.shape.name.empty() ? "usual proportions" : r.shape.name) +
                     ", " + grouped(report.parameters) + " parameters, " + dtype_name(r.dtype) +
                     "\n";
  text +=
      print("  %llu layers of width %llu; %s tokens a step in %llu micro-batch%s, context %llu\n",
            static_cast<unsigned long long>(r.shape.layers),
            static_cast<unsigned long long>(r.shape.width), grouped(r.tokens).c_str(),
            static_cast<unsigned long long>(r.micro_batches), r.micro_batches == 1 ? "" : "es",
            static_cast<unsigned long long>(r.context));
  if (has_sums(r)) text += "  the engine adds up the micro-batches' gradients, in FP32\n";
  text += "rates\n";
  text += rate("link, each way", r.link.value / 1e9, "GB/s", r.link,
               "--pcie (no device to measure it on)");
  text += rate("update on the host, all nodes", r.host_update.value / 1e6, "Mparam/s",
               r.host_update, "--dram");
  text += rate("compute", r.compute.value / 1e12, "TFLOP/s", r.compute, "--tflops");
  text += rate("device memory", r.device_memory.value / 1e9, "GB/s", r.device_memory, "--hbm");
  return text;
}

std::string memory(const PlanReport& report) {
  const MemoryPlan& plan = report.memory;
  const std::uint64_t n = report.parameters;
  std::string text = block("device memory", plan.device, n);
  text += line("without offload", plan.without_offload, n);
  text += block("host memory, pinned", plan.pinned, n);
  text += print("  %-34s %12s of at most %.3f MiB of gradients, then of weights\n", "buckets",
                grouped(report.host.buckets).c_str(),
                static_cast<double>(report.request.bucket_bytes) / 1048576.0);
  text += block("host memory, pageable", plan.pageable, n);
  text += "checkpoint\n" + line("file: masters and moments", plan.checkpoint, n);
  const auto verdict = [&](const char* what, std::uint64_t need, std::uint64_t have) {
    const auto difference = static_cast<double>(need > have ? need - have : have - need);
    return print("  %s: %s, %.3f of %.3f GiB (%.3f GiB %s)\n", what,
                 need <= have ? "fits" : "does not fit", static_cast<double>(need) / kGiB,
                 static_cast<double>(have) / kGiB, difference / kGiB,
                 need <= have ? "free" : "short");
  };
  text += "verdict\n";
  text += verdict("device", sum_of(plan.device), report.request.device_bytes);
  text += verdict("host", plan.host(), report.request.host_bytes);
  return text;
}

std::string phase(const char* what, double busy_us, double exposed_us, double step_us) {
  return print("  %-34s %12.2f %12.2f %8.1f %%\n", what, busy_us / 1e3, exposed_us / 1e3,
               100.0 * exposed_us / step_us);
}

std::string step(const PlanReport& report) {
  const JudgedStep& s = report.asked;
  const std::string where = s.device_fraction == 0.0
                                ? "state on the host"
                                : print("%.1f %% on the device", 100.0 * s.device_fraction);
  std::string text =
      print("%-36s %12s %12s %10s\n",
            ("step, " + std::string(name_of(report.request.schedule)) + ", " + where).c_str(),
            "busy ms", "exposed ms", "of step");
  text += phase("forward", s.forward_us, s.forward_us, s.step_us);
  const bool several = report.request.micro_batches > 1;
  text += phase(several ? "backward, other micro-batches" : "backward", s.backward_us,
                s.backward_us, s.step_us);
  text += phase("gradients down", s.link_down_us, s.exposed_gradients_us + s.exposed_gate_us,
                s.step_us);
  text += phase(has_sums(report.request) ? "updates and sums on the host" : "update on the host",
                s.update_us, s.exposed_update_us, s.step_us);
  text += phase("weights up", s.link_up_us, s.exposed_weights_us, s.step_us);
  text += phase("norms and updates on the device", s.device_us, s.exposed_device_us, s.step_us);
  text += print("  %-34s %12s %12.2f\n", "step", "", s.step_us / 1e3);
  text += print("  %-34s %12.3f GB down, %.3f GB up, in %llu buckets\n", "across the link",
                static_cast<double>(s.bytes_down) / 1e9, static_cast<double>(s.bytes_up) / 1e9,
                static_cast<unsigned long long>(s.buckets));
  return text + "  limited by " + limit_of(s) + "\n";
}

std::string save(const PlanReport& report) {
  const PlanRequest& r = report.request;
  const SavePlan& plan = report.save;
  std::string text = "save beside training, begun after a step\n";
  text += rate("disk", r.disk.value / 1e9, "GB/s", r.disk, "--disk");
  text += print("  %-34s %12.2f s, of %.1f steps\n", "written after", plan.save_us / 1e6,
                plan.save_us / report.asked.step_us);
  text += print("  %-34s %12.3f GiB (snapshot %.3f GiB), %.2f ms of host memory\n",
                "copied by the next step", static_cast<double>(plan.copied_bytes) / kGiB,
                static_cast<double>(r.snapshot_bytes) / kGiB, plan.copy_us / 1e3);
  if (plan.wait_us == 0.0) return text + "  no update waits for the disk\n";
  const double more = plan.wait_us / 1e6 * r.disk.value;
  return text + print(
                    "  the next step's update waits %.2f s for the disk; none from "
                    "--snapshot-bytes %.0f on\n",
                    plan.wait_us / 1e6, std::ceil(static_cast<double>(r.snapshot_bytes) + more));
}

std::string placement(const PlanReport& report) {
  const PlannedStep& best = report.best;
  std::string text =
      print(has_sums(report.request)
                ? "placement, with %.3f GiB of the device for state and its sums\n"
                : "placement, with %.3f GiB of the device for state beside all gradients\n",
            static_cast<double>(report.free_bytes) / kGiB);
  text += print("  %-34s %12.2f ms\n", "all state on the host", report.host.step_us / 1e3);
  if (report.request.device_fraction > 0.0) {
    text += print("  %-34s %12.2f ms   %.1f %% of the state on the device\n", "as asked",
                  report.asked.step_us / 1e3, 100.0 * report.asked.device_fraction);
  }
  text += print("  %-34s %12.2f ms   %.1f %% of the state on the device\n", "best",
                best.step_us / 1e3, 100.0 * best.device_fraction);
  text += print("  %-34s %12.2f ms   were there room\n", "all state on the device",
                report.without_offload_us / 1e3);
  return text;
}

std::string speed(const PlanReport& report) {
  std::string text =
      print("%-36s %12s %16s %10s\n", "tokens a step", "step ms", "no offload ms", "speed");
  for (const SpeedRow& row : report.speed) {
    text += print("  %-34s %12.2f %16.2f %8.1f %%\n", grouped(row.tokens).c_str(),
                  row.step_us / 1e3, row.without_offload_us / 1e3, 100.0 * row.fraction());
  }
  if (report.tokens_to_hide) {
    text += "  from about " + grouped(*report.tokens_to_hide) +
            " tokens a step on, 95 % of the speed without offload\n";
  } else {
    text += "  no number of tokens gives 95 % of the speed without offload\n";
  }
  return text;
}

}  // namespace

std::string plan_text(const PlanReport& report) {
  std::string text = head(report) + memory(report) + step(report) + save(report) +
                     placement(report) + speed(report);
  text += "largest model of usual proportions that fits\n";
  text += print("  with offload %.2f billion parameters (then %s is full), without %.2f\n",
                static_cast<double>(report.largest) / 1e9, report.largest_limit.c_str(),
                static_cast<double>(report.largest_without_offload) / 1e9);
  return text;
}

}  // namespace outboard::cli
