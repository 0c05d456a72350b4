// SPDX-License-Identifier: Apache-2.0
/// Whether this process may bind memory and threads: containers forbid it by default.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace outboard::topology {

/// Each does one harmless call and returns 0 or errno.
struct BindingCalls {
  std::function<int()> mbind;              ///< on a page of its own, which is given back
  std::function<int()> set_mempolicy;      ///< sets this thread's policy to what it is
  std::function<int()> sched_setaffinity;  ///< sets this thread's affinity to what it is
};
[[nodiscard]] BindingCalls system_binding_calls();

struct BindingRefusal {
  std::string call;
  int error = 0;

  /// "mbind: Operation not permitted (errno 1)".
  [[nodiscard]] std::string text() const;
  /// What the owner of the container or kernel can do.
  [[nodiscard]] std::string remedy() const;
};

/// What helps where the system refuses a memory policy with this errno.
[[nodiscard]] const char* memory_policy_remedy(int error) noexcept;

struct BindingReport {
  std::optional<BindingRefusal> memory;   ///< none: permitted
  std::optional<BindingRefusal> threads;  ///< none: permitted
};
/// Changes nothing that outlasts it. Never throws but for what `calls` throw.
[[nodiscard]] BindingReport probe_binding(const BindingCalls& calls);

}  // namespace outboard::topology
