// SPDX-License-Identifier: Apache-2.0
/// All that can be told of a machine before a trainer runs on it, as one value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "topology/binding_probe.hpp"
#include "topology/gpu_driver.hpp"
#include "topology/gpus.hpp"
#include "topology/host_limits.hpp"
#include "topology/machine.hpp"
#include "topology/memory_limit.hpp"

namespace outboard::inspect {

/// Which machine: at most one of the three texts; none: this one.
struct Question {
  std::string root{};                            ///< a folder in front of /proc, /sys and /dev
  std::string xml{};                             ///< a file of hwloc's
  std::string synthetic{};                       ///< as topology::synthetic() takes it
  std::uint32_t threads_per_node = 0;            ///< 0: as the engine chooses
  std::optional<std::uint32_t> reserve_cores{};  ///< unset: as the engine chooses

  /// There is nothing to read beside the description.
  [[nodiscard]] bool described() const { return !xml.empty() || !synthetic.empty(); }
  [[nodiscard]] bool this_machine() const { return root.empty() && !described(); }
};

/// What is asked of the running system itself, and only where it is the machine in question.
struct Probes {
  std::function<topology::DriverAnswer()> driver;
  topology::BindingCalls binding;
  std::optional<std::string> visible_devices;  ///< CUDA_VISIBLE_DEVICES
};
[[nodiscard]] Probes system_probes();

struct DriverFindings {
  topology::DriverReport report;
  std::vector<topology::DriverDevice> devices;
};

struct Kernels {
  std::string target;                  ///< the instruction set in use
  std::vector<std::string> supported;  ///< best first
  std::string problem;                 ///< "" or what is wrong with OUTBOARD_SIMD
};

struct HostReport {
  Question question;
  topology::Machine machine;
  topology::ThreadChoice threads;
  /// Of the state, of each node, by its threads; they add up to 1. An engine may find at commit()
  /// that nodes update at other rates, and shares it out by those.
  std::vector<double> shares;
  std::vector<std::uint32_t> bucket_nodes;  ///< of equal buckets, the first in forward order
  topology::HostLimits limits;              ///< empty for a described machine
  topology::MemoryLimit memory;             ///< likewise
  std::vector<topology::Gpu> gpus;          ///< of all but a made-up machine
  topology::VisibleGpus visible;            ///< what CUDA_VISIBLE_DEVICES leaves
  std::optional<std::string> visible_devices;
  // Of the running system only:
  std::optional<DriverFindings> driver;
  std::optional<topology::BindingReport> binding;
  std::optional<Kernels> kernels;
  std::vector<std::string> backends;  ///< of this build: device::built_backends()
};

/// Reads and asks; changes nothing. Where the driver lists no devices, CUDA_VISIBLE_DEVICES is
/// taken to count GPUs by PCI address.
/// @throws Error{invalid_config} as topology::synthetic(), read_xml() and choose_threads().
[[nodiscard]] HostReport inspect(const Question& question, const Probes& probes);

}  // namespace outboard::inspect
