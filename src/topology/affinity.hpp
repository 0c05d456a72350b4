// SPDX-License-Identifier: Apache-2.0
/// Lends a thread to a node and gives it back unchanged.
#pragma once

#include <sched.h>

#include <cstddef>
#include <memory>

namespace outboard::topology {

/// Remembers the affinity of the calling thread and restores it on destruction, on that thread.
/// Does nothing where the system does not tell.
class SavedAffinity {
 public:
  SavedAffinity() noexcept;
  ~SavedAffinity();
  SavedAffinity(const SavedAffinity&) = delete;
  SavedAffinity& operator=(const SavedAffinity&) = delete;

 private:
  struct Deleter {
    void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
  };
  std::size_t bytes_ = 0;
  std::unique_ptr<cpu_set_t, Deleter> saved_;  ///< null: unknown
};

}  // namespace outboard::topology
