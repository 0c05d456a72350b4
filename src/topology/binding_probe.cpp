// SPDX-License-Identifier: Apache-2.0
#include "topology/binding_probe.hpp"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "topology/affinity.hpp"

namespace outboard::topology {
namespace {

constexpr unsigned long kMostNodes = 4096;  // the kernel refuses masks shorter than its own
using NodeMask = std::array<unsigned long, kMostNodes / (8 * sizeof(unsigned long))>;

int error_of(long result) {
  return result == 0 ? 0 : errno;
}

int get_policy(int& mode, NodeMask& nodes, unsigned flags) {
  return error_of(syscall(SYS_get_mempolicy, &mode, nodes.data(), kMostNodes, nullptr, flags));
}

int try_mbind() {
  NodeMask nodes{};
  int unused = 0;
  if (get_policy(unused, nodes, MPOL_F_MEMS_ALLOWED) != 0) nodes[0] = 1;
  const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 0;  // says nothing of binding
  const int error =
      error_of(syscall(SYS_mbind, page, bytes, MPOL_BIND, nodes.data(), kMostNodes, 0U));
  (void)munmap(page, bytes);  // a page of our own, never touched
  return error;
}

int try_set_mempolicy() {
  NodeMask nodes{};
  int mode = MPOL_DEFAULT;
  if (const int error = get_policy(mode, nodes, 0U)) return error;
  const bool none = mode == MPOL_DEFAULT;
  return error_of(
      syscall(SYS_set_mempolicy, mode, none ? nullptr : nodes.data(), none ? 0UL : kMostNodes));
}

std::optional<BindingRefusal> refusal_of(const char* call, int error) {
  if (error == 0) return std::nullopt;
  return BindingRefusal{call, error};
}

}  // namespace

std::string BindingRefusal::text() const {
  return call + ": " + std::generic_category().message(error) + " (errno " + std::to_string(error) +
         ")";
}

std::string BindingRefusal::remedy() const {
  if (call == "sched_setaffinity") {
    return "allow sched_setaffinity in the container's seccomp profile (--security-opt "
           "seccomp=FILE); workers run unbound until then";
  }
  if (error != EPERM && error != ENOSYS) return memory_policy_remedy(error);
  return "in a container: --cap-add SYS_NICE, or a seccomp profile that allows mbind and "
         "set_mempolicy (--security-opt seccomp=FILE); until then pages lie where they are first "
         "touched";
}

const char* memory_policy_remedy(int error) noexcept {
  switch (error) {
    case EPERM:
    case ENOSYS:
      return "in a container allow mbind and set_mempolicy (docker: --cap-add SYS_NICE)";
    case ENOMEM:
      return "free some memory";
    default:
      return "look whether the node is among those of Mems_allowed_list in /proc/self/status";
  }
}

BindingCalls system_binding_calls() {
  return {.mbind = try_mbind, .set_mempolicy = try_set_mempolicy, .sched_setaffinity = [] {
            return SavedAffinity().set_again();
          }};
}

BindingReport probe_binding(const BindingCalls& calls) {
  BindingReport report;
  report.memory = refusal_of("mbind", calls.mbind());
  const auto policy = refusal_of("set_mempolicy", calls.set_mempolicy());
  if (!report.memory) report.memory = policy;
  report.threads = refusal_of("sched_setaffinity", calls.sched_setaffinity());
  return report;
}

}  // namespace outboard::topology
