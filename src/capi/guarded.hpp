// SPDX-License-Identifier: Apache-2.0
/// The border between C and C++: no exception crosses it, and what was thrown becomes a status and
/// this thread's message.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "outboard/error.hpp"
#include "outboard/outboard.h"

namespace outboard::capi {

[[nodiscard]] outboard_status status_of(ErrorCode code) noexcept;
/// This thread's message, for outboard_last_error().
[[nodiscard]] const char* last_error() noexcept;
void set_last_error(const char* text) noexcept;

/// `call`: name of the C function.
[[noreturn]] void refuse(const char* call, const std::string& what);
void require_pointer(const char* call, const char* name, const void* pointer);

template <class Body>
outboard_status guarded(Body&& body) noexcept {
  outboard_status status = OUTBOARD_INTERNAL;
  try {
    body();
    return OUTBOARD_OK;
  } catch (const Error& failure) {
    set_last_error(failure.what());
    status = status_of(failure.code());
  } catch (const std::bad_alloc&) {
    set_last_error("out of host memory");
    status = OUTBOARD_OUT_OF_MEMORY;
  } catch (const std::exception& failure) {
    set_last_error(failure.what());
  } catch (...) {
    set_last_error("an exception of unknown type");
  }
  return status;
}

}  // namespace outboard::capi
