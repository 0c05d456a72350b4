// SPDX-License-Identifier: Apache-2.0
#include "device/sim/fault_plan.hpp"

#include "outboard/error.hpp"

namespace outboard::sim {

const char* to_string(Call call) noexcept {
  switch (call) {
    case Call::allocate:
      return "allocate";
    case Call::register_host:
      return "register_host";
    case Call::create_stream:
      return "create_stream";
    case Call::create_event:
      return "create_event";
    case Call::record:
      return "record";
    case Call::wait_event:
      return "wait_event";
    case Call::notify:
      return "notify";
    case Call::copy_to_host:
      return "copy_to_host";
    case Call::copy_to_device:
      return "copy_to_device";
    case Call::copy_on_device:
      return "copy_on_device";
    case Call::kernel:
      return "kernel";
    case Call::wait_flag:
      return "wait_flag";
    case Call::write_flag:
      return "write_flag";
  }
  return "unknown call";
}

std::string injected_failure(Call call, std::uint64_t number) {
  return std::string(to_string(call)) + ": injected failure (call " + std::to_string(number) +
         " of this kind)";
}

std::uint64_t FaultPlan::next(Call call) {
  const std::uint64_t number = ++calls_[static_cast<std::size_t>(call)];
  for (const Fault& fault : faults_) {
    if (fault.call != call || fault.nth != number) continue;
    if (fault.at_call) throw Error(ErrorCode::device_failure, injected_failure(call, number));
    return number;
  }
  return 0;
}

std::uint64_t FaultPlan::next_without_throw(Call call) noexcept {
  const std::uint64_t number = ++calls_[static_cast<std::size_t>(call)];
  for (const Fault& fault : faults_) {
    if (fault.call == call && fault.nth == number) return number;
  }
  return 0;
}

}  // namespace outboard::sim
