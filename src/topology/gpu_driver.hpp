// SPDX-License-Identifier: Apache-2.0
/// Whether this process can use a GPU, and if not, which of the reasons it is. Asks the driver's
/// own library, found at run time, which then stays loaded.
#pragma once

#include <string>
#include <vector>

#include "topology/gpus.hpp"

namespace outboard::topology {

enum class DriverState {
  ready,       ///< at least one device
  no_library,  ///< libcuda.so.1 cannot be loaded
  no_device,   ///< the driver works and has no device for this process
  too_old,     ///< the driver is of a CUDA before 11.7, or its library lacks a call
  forbidden,   ///< there are devices that this process may not use
  busy,        ///< other processes have each of them alone (compute mode EXCLUSIVE_PROCESS)
  failed,      ///< the driver answers with another error
};

/// What libcuda.so.1 says.
struct DriverAnswer {
  std::string load_error;  ///< "" if it was loaded and has what is asked
  bool loaded = true;  ///< with a load_error: false if there is no library, else it lacks a call
  int result = 0;      ///< the first call's that failed; 0: none did
  std::string result_name;
  std::string call;      ///< that call
  int cuda_version = 0;  ///< 1000 * major + 10 * minor; 0: unknown
  std::vector<DriverDevice> devices;
};
/// Loads the library and initializes the driver in this process: up to seconds. A device that one
/// process may have alone is taken for a moment, to find out whether another has it. Never throws.
[[nodiscard]] DriverAnswer ask_driver();

/// A file through which the driver's library reaches the kernel.
struct DeviceFile {
  std::string path;
  int error = 0;  ///< errno of opening it for reading and writing; 0: allowed
};
[[nodiscard]] std::vector<DeviceFile> read_device_files(const std::string& root);

/// What is seen from outside.
struct DriverTraces {
  std::string module_version;  ///< of /proc/driver/nvidia/version; "": the module is not loaded
  std::vector<DeviceFile> files;
  std::size_t pci_gpus = 0;  ///< NVIDIA's, on the PCI bus
  bool visible_set = false;  ///< CUDA_VISIBLE_DEVICES is set
};
[[nodiscard]] DriverTraces read_driver_traces(const std::string& root, std::size_t pci_gpus);

struct DriverReport {
  DriverState state = DriverState::no_library;
  std::string found;   ///< one line
  std::string remedy;  ///< "" where there is nothing to do
};
/// Which of the states it is, from what the library says and what is seen beside it.
[[nodiscard]] DriverReport judge_driver(const DriverAnswer& answer, const DriverTraces& traces);

[[nodiscard]] const char* name_of(DriverState state) noexcept;

}  // namespace outboard::topology
