// SPDX-License-Identifier: Apache-2.0
#include "topology/affinity.hpp"

#include <pthread.h>

#include <cerrno>

#include "topology/system_files.hpp"

namespace outboard::topology {

SavedAffinity::SavedAffinity() noexcept {
  // The kernel refuses a set smaller than its own with EINVAL and does not tell its size.
  for (std::size_t cpus = 1024; cpus <= (std::size_t{1} << 20); cpus *= 2) {
    bytes_ = CPU_ALLOC_SIZE(cpus);
    saved_.reset(CPU_ALLOC(cpus));
    if (!saved_) return;
    const int error = pthread_getaffinity_np(pthread_self(), bytes_, saved_.get());
    if (error == 0) return;
    saved_.reset();
    if (error != EINVAL) return;
  }
}

SavedAffinity::~SavedAffinity() {
  // The set was this thread's own a moment ago; a cpu that has since gone offline leaves the
  // thread where it is.
  if (saved_) (void)pthread_setaffinity_np(pthread_self(), bytes_, saved_.get());
}

std::vector<std::uint32_t> SavedAffinity::cpus() const {
  std::vector<std::uint32_t> allowed;
  if (!saved_) return allowed;
  for (std::uint32_t cpu = 0; cpu < 8 * bytes_; ++cpu) {
    if (CPU_ISSET_S(cpu, bytes_, saved_.get())) allowed.push_back(cpu);
  }
  return allowed;
}

int SavedAffinity::set_again() const noexcept {
  if (!saved_) return ENOSYS;
  return pthread_setaffinity_np(pthread_self(), bytes_, saved_.get());
}

std::vector<std::uint32_t> allowed_cpus(const std::string& root) {
  if (root.empty()) return SavedAffinity().cpus();
  const auto list = entry_text(root + "/proc/self/status", "Cpus_allowed_list:");
  return list ? parse_cpu_list(*list).value_or(std::vector<std::uint32_t>{})
              : std::vector<std::uint32_t>{};
}

}  // namespace outboard::topology
