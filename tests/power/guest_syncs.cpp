// SPDX-License-Identifier: Apache-2.0
#include "power/guest_syncs.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>

namespace outboard::power_test {
namespace {

std::atomic<Syncs> mode{Syncs::all};

bool left_out(int handle) noexcept {
  struct stat info = {};
  if (mode == Syncs::all || ::fstat(handle, &info) != 0) return false;
  return (mode == Syncs::not_of_folders) == S_ISDIR(info.st_mode);
}

}  // namespace

void leave_out(Syncs which) noexcept {
  mode = which;
}

Syncs syncs_named(const std::string& name) {
  if (name == "all") return Syncs::all;
  if (name == "not_of_files") return Syncs::not_of_files;
  if (name == "not_of_folders") return Syncs::not_of_folders;
  throw std::runtime_error("no such syncs: " + name);
}

}  // namespace outboard::power_test

// Found before those of the C library, since they are the program's own.
extern "C" {
__attribute__((visibility("default"))) int fsync(int handle) {
  if (outboard::power_test::left_out(handle)) return 0;
  return static_cast<int>(::syscall(SYS_fsync, handle));
}
__attribute__((visibility("default"))) int fdatasync(int handle) {
  if (outboard::power_test::left_out(handle)) return 0;
  return static_cast<int>(::syscall(SYS_fdatasync, handle));
}
}
