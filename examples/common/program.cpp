// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <csignal>
#include <exception>
#include <iostream>
#include <string>

#include "arguments.hpp"
#include "outboard/exit_status.hpp"

namespace example {
namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

extern "C" void request_stop(int signal) {
  stop_requested = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  return stop_requested;
}

int run_program(const Program& program) {
  const auto fail = [&program](const std::string& text, int code) {
    std::cout << std::flush;
    std::cerr << program.name << ": " << text << '\n';
    return code;
  };
  (void)std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` then fails, and is told
  try {
    program.run();
    if (std::cout.flush()) return 0;
    return fail("cannot write to standard output: what was printed is not complete; make room", 1);
  } catch (const UsageError& error) {
    return fail(error.what(), 2);
  } catch (const outboard::Error& error) {
    const bool room = error.code() == outboard::ErrorCode::out_of_memory;
    return fail(room ? program.room() + " (" + error.what() + ")" : error.what(),
                outboard::exit_status(error.code()));
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}

}  // namespace example
