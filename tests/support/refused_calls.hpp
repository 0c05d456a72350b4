// SPDX-License-Identifier: Apache-2.0
/// System calls that the kernel refuses, as a container's seccomp profile makes it.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace outboard::testing {

inline constexpr long kMemoryPolicyCalls[] = {SYS_set_mempolicy, SYS_mbind, SYS_move_pages};

/// From now on the kernel answers these calls of this thread, and of what it starts, with `error`.
/// Never taken back. @return false, with errno, if the kernel knows no filters.
inline bool refuse_calls(std::span<const long> calls, int error) {
  std::vector<sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const long call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K,
                               SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(error) & 0xFFFFu)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

}  // namespace outboard::testing
