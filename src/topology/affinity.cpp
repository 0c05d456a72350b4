// SPDX-License-Identifier: Apache-2.0
#include "topology/affinity.hpp"

#include <pthread.h>

#include <cerrno>

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

}  // namespace outboard::topology
