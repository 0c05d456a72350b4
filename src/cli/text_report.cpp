// SPDX-License-Identifier: Apache-2.0
#include <cstdarg>
#include <cstdio>

#include "cli/report.hpp"
#include "outboard/version.hpp"

namespace outboard::cli {

using update_bench::Measurement;
using update_bench::name_of;
using update_bench::ratios;
using update_bench::summarize;
using update_bench::Summary;

namespace {

std::string ratio_line(const char* what, const std::vector<double>& values) {
  const Summary ratio = summarize(values);
  return print("    %-42s %6.3f  (%.3f to %.3f)\n", what, ratio.median, ratio.low, ratio.high);
}

}  // namespace

std::string print(const char* format, ...) {
  char text[512];
  std::va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string size_of(const Measurement& measurement) {
  if (measurement.workload.tensors == 0) return grouped(measurement.params);
  return grouped(measurement.params) + " in " + grouped(measurement.workload.tensors) + " tensors";
}

std::string formats_of(const update_bench::Workload& workload) {
  std::string text(name_of(workload.grad));
  if (workload.weight != workload.grad) text.append(" to ").append(name_of(workload.weight));
  if (workload.stochastic) text += " stochastic";
  return text + (workload.alias ? ", in place" : ", apart");
}

std::string pages_of(const Measurement& measurement) {
  const update_bench::PageUse& pages = measurement.pages;
  if (!pages.known || pages.resident_bytes == 0) return "pages unknown";
  return print("%.0f %% huge pages", 100.0 * static_cast<double>(pages.huge_bytes) /
                                         static_cast<double>(pages.resident_bytes));
}

std::string threads_of(const update_bench::MachineInfo& machine) {
  const std::size_t nodes = machine.threads_per_node.size();
  return machine.threads_why + print(", on %zu NUMA node%s", nodes, nodes == 1 ? "" : "s");
}

std::string text_head(const Report& report) {
  std::string text = print("outboard %s  %s\n", kVersion, report.command.c_str());
  text += print(
      "%s, %s; %s\n\n",
      report.machine.processor.empty() ? "processor unknown" : report.machine.processor.c_str(),
      report.machine.isa.c_str(), threads_of(report.machine).c_str());
  return text + print("%-28s %-8s %-20s %8s %7s %7s %7s  %s\n", "parameters", "rule", "formats",
                      "ns/param", "B/param", "GB/s", "roof", "share of the roof (quartiles)");
}

std::string text_rows(const Measurement& m) {
  const double ns = summarize(m.update).median;
  const double roof = summarize(m.roof).median;
  const Summary share = summarize(m.share_of_roof());
  std::string text =
      print("%-28s %-8s %-20s %8.3f %7.0f %7.1f %7.1f  %.3f (%.3f to %.3f)\n", size_of(m).c_str(),
            std::string(name_of(m.workload.rule)).c_str(), formats_of(m.workload).c_str(), ns,
            m.bytes_per_param, m.bytes_per_param / ns, update_bench::kRoofBytes / roof,
            share.median, share.low, share.high);
  if (!m.one_tensor.empty()) {
    text += ratio_line("time over one tensor as large", ratios(m.update, m.one_tensor));
  }
  if (!m.subnormal.empty()) {
    text += ratio_line("time on subnormal over normal values", ratios(m.subnormal, m.normal));
  }
  return text;
}

std::string text_foot(const Report& report) {
  std::string text = "\n";
  for (const Measurement& m : report.measurements) {
    text +=
        print("%s: medians of %zu repeats of %u steps; %s; triad %.1f GB/s; load %.2f to %.2f\n",
              size_of(m).c_str(), m.update.size(), m.passes, pages_of(m).c_str(),
              update_bench::kTriadBytes / summarize(m.triad).median, m.load_before, m.load_after);
    text += print("  %s elements computed again on one thread, %s: %s (digest %016llx)\n",
                  grouped(m.check.elems).c_str(), m.check.target.c_str(),
                  m.check.equal ? "the same bits" : "DIFFERENT",
                  static_cast<unsigned long long>(m.check.digest));
    text += m.notes;
  }
  return text + report.machine.notes +
         "roof: three FP32 streams read and written on the same threads and pages, taken in "
         "turns\n";
}

std::string wrong_result(const Report& report) {
  for (const Measurement& m : report.measurements) {
    if (m.check.equal) continue;
    return size_of(m) + " parameters: one thread with " + m.check.target + " computes other bits" +
           print(" (digest %016llx, expected %016llx); the figures mean nothing, please report it",
                 static_cast<unsigned long long>(m.check.digest),
                 static_cast<unsigned long long>(m.check.expected));
  }
  return "";
}

}  // namespace outboard::cli
