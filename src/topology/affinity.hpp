// SPDX-License-Identifier: Apache-2.0
/// Which cpus a thread may use; lends it to a node and gives it back unchanged.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace outboard::topology {

/// The cpus that the calling thread may use, ascending; with a `root` those of its
/// /proc/self/status. None where the system does not tell.
[[nodiscard]] std::vector<std::uint32_t> allowed_cpus(const std::string& root);

/// Remembers the affinity of the calling thread and restores it on destruction, on that thread.
/// Does nothing where the system does not tell.
class SavedAffinity {
 public:
  SavedAffinity() noexcept;
  ~SavedAffinity();
  SavedAffinity(const SavedAffinity&) = delete;
  SavedAffinity& operator=(const SavedAffinity&) = delete;

  [[nodiscard]] std::vector<std::uint32_t> cpus() const;
  /// Sets the affinity again that it is. @return 0 or the error: whether it may be set at all.
  [[nodiscard]] int set_again() const noexcept;

 private:
  struct Deleter {
    void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
  };
  std::size_t bytes_ = 0;
  std::unique_ptr<cpu_set_t, Deleter> saved_;  ///< null: unknown
};

}  // namespace outboard::topology
