// SPDX-License-Identifier: Apache-2.0
#include "capi/guarded.hpp"

namespace outboard::capi {
namespace {

thread_local std::string message;
thread_local const char* shown = "";

}  // namespace

// The C enumeration begins with OUTBOARD_OK and then has the codes in their order.
outboard_status status_of(ErrorCode code) noexcept {
  static_assert(static_cast<int>(ErrorCode::bad_checkpoint) + 1 == OUTBOARD_BAD_CHECKPOINT);
  return static_cast<outboard_status>(static_cast<int>(code) + 1);
}

const char* last_error() noexcept {
  return shown;
}

void set_last_error(const char* text) noexcept {
  try {
    message = text;
    shown = message.c_str();
  } catch (...) {
    shown = "no memory for the text of the error";
  }
}

void refuse(const char* call, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, std::string(call) + "(): " + what);
}

void require_pointer(const char* call, const char* name, const void* pointer) {
  if (pointer == nullptr) refuse(call, std::string("`") + name + "` is null");
}

}  // namespace outboard::capi
