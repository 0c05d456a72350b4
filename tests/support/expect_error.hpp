// SPDX-License-Identifier: Apache-2.0
/// Checks an Error's code and that its text says what a user needs.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "outboard/error.hpp"

namespace outboard::testing {

/// The Error that `call` throws, or nothing.
template <class Call>
std::optional<Error> caught(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

inline const char* code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::invalid_config:
      return "invalid_config";
    case ErrorCode::protocol_error:
      return "protocol_error";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::device_failure:
      return "device_failure";
    case ErrorCode::deadlock:
      return "deadlock";
    case ErrorCode::poisoned:
      return "poisoned";
    case ErrorCode::numerics:
      return "numerics";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::io_failure:
      return "io_failure";
    case ErrorCode::no_space:
      return "no_space";
    case ErrorCode::bad_checkpoint:
      return "bad_checkpoint";
  }
  return "unknown";
}

/// Fails unless `text` holds every one of `words`.
inline void expect_words(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    EXPECT_NE(text.find(word), std::string_view::npos) << "no \"" << word << "\" in: " << text;
  }
}

/// Fails unless `call` throws Error{code} whose text holds every one of `words`.
template <class Call>
void expect_error(ErrorCode code, std::initializer_list<std::string_view> words, Call&& call) {
  const std::optional<Error> error = caught(call);
  if (!error) {
    ADD_FAILURE() << "no error; expected " << code_name(code);
    return;
  }
  const std::string_view text = error->what();
  EXPECT_EQ(error->code(), code) << code_name(error->code()) << ": " << text;
  expect_words(text, words);
}

}  // namespace outboard::testing
