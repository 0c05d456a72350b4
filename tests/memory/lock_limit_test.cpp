// SPDX-License-Identifier: Apache-2.0
/// Why memory could not be locked: by the process's limit, or by a device's own.
#include "memory/lock_limit.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace outboard::memory {
namespace {

TEST(LockLimit, IsTheCauseOnlyOfWhatDoesNotFitIt) {
  const std::string own = "the limit is the device's own";
  EXPECT_EQ(why_refused({}, 1 << 30), own);
  EXPECT_EQ(why_refused({.limit = 65536, .locked_bytes = 4096}, 61440), own);
  const std::string text = why_refused({.limit = 65536, .locked_bytes = 4096}, 61441);
  for (const char* part : {"65536 bytes", "RLIMIT_MEMLOCK", "ulimit -l unlimited"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST(LockLimit, CountsWhatThisProcessHasLocked) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const memory =
      mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::uint64_t before = read_lock_use().locked_bytes;
  // Not mlock(): sanitizers make it do nothing.
  if (syscall(SYS_mlock, memory, page) != 0) GTEST_SKIP() << "this process may lock nothing";
  EXPECT_EQ(read_lock_use().locked_bytes, before + page);
  munmap(memory, page);
  EXPECT_EQ(read_lock_use().locked_bytes, before);
}

// Of a user namespace a process has every capability, and yet may lock no more than the limit.
TEST(LockLimit, HoldsInAUserNamespace) {
  constexpr int kNoNamespaces = 77;
  constexpr rlim_t kLimit = 65536;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{kLimit, kLimit};
    if (unshare(CLONE_NEWUSER) != 0 || setrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
      _exit(kNoNamespaces);
    }
    _exit(read_lock_limit() == kLimit ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoNamespaces) GTEST_SKIP() << "user namespaces are not permitted";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace outboard::memory
