// SPDX-License-Identifier: Apache-2.0
// Why a GPU cannot be used is known to whoever knows the machine.
#include <string>

#include "device/cuda/make_backend.hpp"
#include "outboard/device.hpp"
#include "outboard/error.hpp"
#include "topology/gpu_driver.hpp"
#include "topology/gpus.hpp"
#include "topology/machine.hpp"

namespace outboard {
namespace {

[[noreturn]] void refuse(int ordinal, const topology::DriverReport& report) {
  std::string text = "CUDA device " + std::to_string(ordinal) + ": " +
                     topology::name_of(report.state) + ": " + report.found;
  if (!report.remedy.empty()) text += "; " + report.remedy;
  throw Error(ErrorCode::unsupported, text);
}

}  // namespace

Device Device::cuda(int ordinal) {
  if (!device::cuda::is_built()) return Device(device::cuda::make_backend(ordinal));
  const topology::DriverAnswer answer = topology::ask_driver();
  const std::size_t gpus = topology::read_gpus("", {}).size();
  const auto report = topology::judge_driver(answer, topology::read_driver_traces("", gpus));
  if (report.state != topology::DriverState::ready) refuse(ordinal, report);
  return Device(device::cuda::make_backend(ordinal));
}

}  // namespace outboard
