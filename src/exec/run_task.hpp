// SPDX-License-Identifier: Apache-2.0
/// The edge between an executor and a task: the task's own functions in the default floating-point
/// environment.
#pragma once

#include <cfenv>
#include <cstdint>

#include "exec/executor.hpp"

namespace outboard::exec {

/// The default environment (nearest even, no flush-to-zero, nothing trapped) for a scope of the
/// calling thread, which then gets its own one back.
class DefaultFpEnvironment {
 public:
  DefaultFpEnvironment() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFpEnvironment() { std::fesetenv(&saved_); }
  DefaultFpEnvironment(const DefaultFpEnvironment&) = delete;
  DefaultFpEnvironment& operator=(const DefaultFpEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

[[nodiscard]] inline std::int64_t rest_ns(const Task& task, std::int64_t busy_ns) noexcept {
  return busy_ns / 1000 * task.rest_permille + busy_ns % 1000 * task.rest_permille / 1000;
}

inline void record_task(core::SpanRecorder* recorder, const Task& task,
                        const core::RecordedTime& time) noexcept {
  if (recorder == nullptr || !recorder->on()) return;
  recorder->add({.row = TimelineRow::node,
                 .node = task.node,
                 .kind = task.kind,
                 .index = static_cast<std::uint32_t>(task.argument),
                 .name = span_kind_name(task.kind)},
                time);
}

inline void run_part(const Task& task, std::uint32_t part) noexcept {
  const DefaultFpEnvironment environment;
  task.body(task.context, task.argument, part);
}

inline void run_done(const Task& task) noexcept {
  if (task.done == nullptr) return;
  const DefaultFpEnvironment environment;
  task.done(task.context, task.argument);
}

}  // namespace outboard::exec
