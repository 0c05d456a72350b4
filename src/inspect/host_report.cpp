// SPDX-License-Identifier: Apache-2.0
#include "inspect/host_report.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "device/backends.hpp"
#include "plan/interleave.hpp"
#include "simd/target.hpp"

namespace outboard::inspect {
namespace {

constexpr std::size_t kBucketsShown = 24;

topology::Machine machine_of(const Question& question) {
  if (!question.synthetic.empty()) return topology::synthetic(question.synthetic);
  if (!question.xml.empty()) return topology::read_xml(question.xml);
  return topology::discover(question.root);
}

// As the engine does while nobody has measured the nodes.
void add_shares(HostReport& report) {
  const std::vector<std::uint32_t>& threads = report.threads.threads_per_node;
  const std::vector<double> weights(threads.begin(), threads.end());
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const double weight : weights) report.shares.push_back(weight / all);
  const std::array<std::uint64_t, kBucketsShown> even = [] {
    std::array<std::uint64_t, kBucketsShown> sizes{};
    sizes.fill(1);
    return sizes;
  }();
  report.bucket_nodes = plan::interleave(even, weights);
}

/// As the driver counts them, as far as files tell.
std::vector<topology::DriverDevice> by_address(const std::vector<topology::Gpu>& gpus) {
  std::vector<topology::DriverDevice> devices;
  devices.reserve(gpus.size());
  for (const topology::Gpu& gpu : gpus) {
    devices.push_back({.pci_address = gpu.pci_address, .uuid = gpu.uuid, .name = gpu.model});
  }
  return devices;
}

/// Names of those that the system shows, and all of those that it does not, as under Windows'
/// Linux.
void add_driver_devices(HostReport& report, const std::vector<topology::DriverDevice>& devices) {
  for (const topology::DriverDevice& device : devices) {
    const std::string address = topology::pci_address_of(device.pci_address);
    const auto shown = std::ranges::find(report.gpus, address, &topology::Gpu::pci_address);
    if (shown != report.gpus.end()) {
      if (shown->model.empty()) shown->model = device.name;
      continue;
    }
    topology::Gpu gpu{.pci_address = address, .model = device.name, .uuid = device.uuid};
    gpu.node_note = "unknown: the system does not show the device";
    if (report.machine.nodes.size() == 1) {
      gpu.node = 0;
      gpu.node_note = "the only node";
    }
    report.gpus.push_back(std::move(gpu));
  }
}

void add_gpus(HostReport& report, const Probes& probes) {
  const std::string& root = report.question.root;
  report.gpus = topology::read_gpus(root, report.machine);
  if (!report.question.this_machine()) {
    report.visible = topology::visible_gpus(std::nullopt, by_address(report.gpus), report.gpus);
    return;
  }
  report.visible_devices = probes.visible_devices;
  const topology::DriverAnswer answer = probes.driver();
  topology::DriverTraces traces = topology::read_driver_traces(root, report.gpus.size());
  traces.visible_set = probes.visible_devices.has_value();
  report.driver = DriverFindings{topology::judge_driver(answer, traces), answer.devices};
  add_driver_devices(report, answer.devices);
  // The driver has applied the variable already.
  report.visible =
      answer.devices.empty()
          ? topology::visible_gpus(probes.visible_devices, by_address(report.gpus), report.gpus)
          : topology::visible_gpus(std::nullopt, answer.devices, report.gpus);
}

}  // namespace

Probes system_probes() {
  Probes probes{topology::ask_driver, topology::system_binding_calls(), std::nullopt};
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) probes.visible_devices = visible;
  return probes;
}

HostReport inspect(const Question& question, const Probes& probes) {
  HostReport report;
  report.question = question;
  report.machine = machine_of(question);
  if (question.threads_per_node == 0) {
    report.machine = topology::within_quota(std::move(report.machine));
  }
  report.threads = topology::choose_threads(
      report.machine, question.threads_per_node,
      question.reserve_cores.value_or(topology::default_reserve(report.machine)));
  add_shares(report);
  if (!question.xml.empty()) report.gpus = topology::read_xml_gpus(question.xml, report.machine);
  if (question.described()) return report;
  report.limits = topology::read_host_limits(question.root);
  report.memory = topology::read_memory_limit(question.root);
  add_gpus(report, probes);
  if (!question.this_machine()) return report;
  report.binding = topology::probe_binding(probes.binding);
  report.kernels = Kernels{std::string(simd::active_target()), simd::supported_targets(),
                           simd::environment_problem()};
  for (const std::string_view name : device::built_backends()) report.backends.emplace_back(name);
  return report;
}

}  // namespace outboard::inspect
