// SPDX-License-Identifier: Apache-2.0
#include "topology/gpu_driver.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "topology/system_files.hpp"

namespace outboard::topology {
namespace {

// Results of the driver's interface, as NVIDIA's cuda.h numbers them.
constexpr int kStubLibrary = 34;
constexpr int kNoDevice = 100;
constexpr int kSystemNotReady = 802;
constexpr int kVersionMismatch = 803;
constexpr int kProhibited = 2;  // a compute mode
constexpr int kOldestCuda = 11070;

const DeviceFile* refused(const DriverTraces& traces) {
  const auto found = std::ranges::find_if(traces.files, [](const DeviceFile& file) {
    return file.error == EPERM || file.error == EACCES;  // others are the device's own
  });
  return found == traces.files.end() ? nullptr : &*found;
}

std::string there_are(std::size_t gpus) {
  return gpus == 0
             ? std::string("no NVIDIA GPU on the PCI bus")
             : std::to_string(gpus) + " NVIDIA GPU" + (gpus == 1 ? "" : "s") + " on the PCI bus";
}

DriverReport no_library(const DriverAnswer& answer, const DriverTraces& traces) {
  DriverReport report{DriverState::no_library, "", ""};
  report.found = "no driver library (" + answer.load_error + "), " + there_are(traces.pci_gpus);
  if (!traces.module_version.empty()) {
    report.found = "the kernel's driver is loaded, " + answer.load_error;
    report.remedy =
        "in a container: start it with --gpus all (NVIDIA Container Toolkit); else install the "
        "driver's libraries of the same version";
  } else if (traces.pci_gpus > 0) {
    report.remedy = "install NVIDIA's driver; until then the software GPU works";
  }
  return report;
}

std::string show_version(int cuda) {
  return "CUDA " + std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
}

DriverReport too_old(const std::string& found) {
  return {DriverState::too_old, found,
          "install a driver for " + show_version(kOldestCuda) + " or newer"};
}

DriverReport forbidden(const DeviceFile& file) {
  return {DriverState::forbidden,
          file.path + ": " + std::generic_category().message(file.error) + " (errno " +
              std::to_string(file.error) + ")",
          "let this user read and write it (group video or render), or start the container with "
          "--gpus all"};
}

DriverReport no_device(const DriverTraces& traces) {
  DriverReport report{DriverState::no_device, "", ""};
  report.found = "the driver works and has no device: " + there_are(traces.pci_gpus);
  if (traces.visible_set) {
    report.found += "; CUDA_VISIBLE_DEVICES is set";
    report.remedy = "unset CUDA_VISIBLE_DEVICES, or name a device that is there";
  } else if (traces.pci_gpus > 0) {
    report.remedy = "look at the kernel's log (dmesg) for NVRM: the device may have failed";
  }
  return report;
}

DriverReport failed(const DriverAnswer& answer) {
  DriverReport report{DriverState::failed, "", "look at nvidia-smi and the kernel's log (dmesg)"};
  report.found = answer.call + " fails with " + std::to_string(answer.result);
  if (!answer.result_name.empty()) report.found += " (" + answer.result_name + ")";
  if (answer.result == kStubLibrary) {
    report.remedy = "this libcuda.so.1 is the toolkit's stub: take it out of LD_LIBRARY_PATH";
  } else if (answer.result == kVersionMismatch) {
    report.remedy = "the driver's library and its kernel module are of different versions: reboot";
  } else if (answer.result == kSystemNotReady) {
    report.remedy = "start nvidia-fabricmanager, which NVSwitch machines need";
  }
  return report;
}

/// Of devices that this process may use, or some of which it may.
DriverReport none_usable(std::size_t in_use) {
  if (in_use == 0) {
    return {DriverState::forbidden, "every device has compute mode PROHIBITED",
            "nvidia-smi -c DEFAULT, as root"};
  }
  return {DriverState::busy,
          "every device that may be used is in use by another process (" + std::to_string(in_use) +
              " of compute mode EXCLUSIVE_PROCESS)",
          "wait for it (nvidia-smi names it), or share the device: nvidia-smi -c DEFAULT, as root"};
}

DriverReport ready(const DriverAnswer& answer, const DriverTraces& traces) {
  const auto& devices = answer.devices;
  const auto prohibited = std::ranges::count(devices, kProhibited, &DriverDevice::compute_mode);
  const auto in_use = std::ranges::count(devices, true, &DriverDevice::in_use);
  if (prohibited + in_use == std::ssize(devices)) {
    return none_usable(static_cast<std::size_t>(in_use));
  }
  if (answer.cuda_version > 0 && answer.cuda_version < kOldestCuda) {
    return too_old("the driver is of " + show_version(answer.cuda_version));
  }
  DriverReport report{DriverState::ready, "", ""};
  report.found =
      std::to_string(answer.devices.size()) + (answer.devices.size() == 1 ? " device" : " devices");
  if (answer.cuda_version > 0) report.found += ", " + show_version(answer.cuda_version);
  if (!traces.module_version.empty()) report.found += ", driver " + traces.module_version;
  if (in_use > 0) report.found += "; " + std::to_string(in_use) + " in use by another process";
  return report;
}

/// The word that looks like "550.54.14".
std::string version_in(const std::string& line) {
  for (std::size_t at = 0; at < line.size();) {
    const auto end = std::min(line.find_first_of(" \t", at), line.size());
    std::string word = line.substr(at, end - at);
    const bool version = word.find('.') != std::string::npos &&
                         word.find_first_not_of("0123456789.") == std::string::npos;
    if (version) return word;
    at = end + 1;
  }
  return line;
}

bool is_of_driver(const std::string& name) {
  if (name == "nvidiactl" || name == "nvidia-uvm") return true;
  return name.size() > 6 && std::all_of(name.begin() + 6, name.end(),
                                        [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// access() asks neither the control group of devices nor, for root, anybody.
int error_of_opening(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return errno;
  (void)close(file);  // nothing was written
  return 0;
}

}  // namespace

std::vector<DeviceFile> read_device_files(const std::string& root) {
  std::vector<DeviceFile> files;
  for (const std::string& name : names_in(root + "/dev", "nvidia")) {
    if (!is_of_driver(name)) continue;
    std::string path = root + "/dev/";
    path += name;
    files.push_back({path, error_of_opening(path)});
  }
  return files;
}

DriverTraces read_driver_traces(const std::string& root, std::size_t pci_gpus) {
  DriverTraces traces;
  if (const auto line = first_line(root + "/proc/driver/nvidia/version")) {
    traces.module_version = version_in(*line);
  }
  traces.files = read_device_files(root);
  traces.pci_gpus = pci_gpus;
  traces.visible_set = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  return traces;
}

DriverReport judge_driver(const DriverAnswer& answer, const DriverTraces& traces) {
  if (!answer.load_error.empty()) {
    return answer.loaded ? too_old(answer.load_error) : no_library(answer, traces);
  }
  if (answer.result == 0 && !answer.devices.empty()) return ready(answer, traces);
  // A file that may not be opened shows as a missing device, or as one of several errors.
  if (const DeviceFile* file = refused(traces)) return forbidden(*file);
  if (answer.result == 0 || answer.result == kNoDevice) return no_device(traces);
  return failed(answer);
}

const char* name_of(DriverState state) noexcept {
  switch (state) {
    case DriverState::ready:
      return "ready";
    case DriverState::no_library:
      return "no driver library";
    case DriverState::no_device:
      return "no device";
    case DriverState::too_old:
      return "driver too old";
    case DriverState::forbidden:
      return "forbidden";
    case DriverState::busy:
      return "busy";
    case DriverState::failed:
      return "driver error";
  }
  return "unknown";
}

}  // namespace outboard::topology
