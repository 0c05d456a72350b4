// SPDX-License-Identifier: Apache-2.0
/// An engine for weights and gradients in ordinary host memory: those of NumPy and of torch on the
/// CPU, on the host as the device.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "outboard/outboard.hpp"

namespace outboard::python {

/// StepResult whose name outlives the engine.
struct StepReport {
  StepResult result;
  std::string non_finite_name;
};

/// Memory of one weight: `elems` elements of `dtype` at `data`, borrowed until close().
struct HostParameter {
  std::string name;
  DType dtype = DType::f32;
  std::uint64_t elems = 0;
  std::uint64_t data = 0;
  std::uint32_t group = 0;
  std::uint64_t master = 0;  ///< address of FP32 masters, read by commit(); 0: none
};

struct HostState {
  std::optional<std::uint64_t> step_count;
  std::vector<std::pair<std::string, std::uint64_t>> streams;  ///< address of `elems` floats each
};

/// Every call may come from any thread: one at a time runs, the others wait. None needs the
/// interpreter's lock, except where Config::log calls into Python.
/// @throws Error; Error{protocol_error} after close(), in a process that has been forked off, and
/// where Config::log calls the engine that calls it.
class HostEngine {
 public:
  explicit HostEngine(Config config);
  ~HostEngine();
  HostEngine(const HostEngine&) = delete;
  HostEngine& operator=(const HostEngine&) = delete;

  /// Waits for all work and releases everything. Again: nothing.
  void close();
  [[nodiscard]] bool closed() const noexcept { return engine_ == nullptr; }

  std::uint32_t add_group(const Rule& rule, const GroupOptions& options);
  void set_group(std::uint32_t group, const Rule& rule);
  std::uint32_t add_parameter(const HostParameter& parameter);
  /// The weight lies at `data` from now on, with the same values.
  void rebind(std::uint32_t parameter, std::uint64_t data);
  void commit();

  /// Gradients at these addresses, which stay as they are until step() or discard() returns. Where
  /// one is refused and others of the call were taken, all of this step are dropped, as by
  /// discard().
  void gradients_ready(const std::vector<std::uint32_t>& parameters,
                       const std::vector<std::uint64_t>& gradients);
  /// Returns once the weight is refreshed.
  void wait(std::uint32_t parameter);
  /// Returns once nothing reads the gradients any more.
  StepReport step();
  void discard();
  void synchronize();
  void set_accumulation(std::uint32_t micro_batches);
  void set_max_grad_norm(double limit);
  void set_gradient_divisor(double divisor);
  [[nodiscard]] double loss_scale();
  void weights_changed(std::uint32_t parameter);
  void set_placement(const PlacementChange& change);

  std::uint64_t state_digest();
  [[nodiscard]] std::vector<std::string> state_streams(std::uint32_t parameter);
  [[nodiscard]] std::uint64_t step_count(std::uint32_t parameter);
  /// Copies one stream to `elems` floats at `out`.
  void read_state(std::uint32_t parameter, const std::string& stream, std::uint64_t out);
  void write_state(std::uint32_t parameter, const HostState& state);
  SaveReport save(const std::string& folder, const SaveOptions& options);
  LoadReport load(const std::string& folder, const LoadOptions& options);
  [[nodiscard]] StepStats stats();
  [[nodiscard]] MemoryLedger ledger();
  [[nodiscard]] std::string describe();

 private:
  struct Parameter {
    std::uint64_t elems = 0;
    bool gradient_pending = false;
  };

  /// The one call that runs, for as long as it lives.
  class Turn {
   public:
    Turn(HostEngine& engine, const char* call, bool closed_is_fine);
    ~Turn() { engine_.owner_.store({}, std::memory_order_relaxed); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    HostEngine& engine_;
    std::unique_lock<std::mutex> lock_;
  };

  [[nodiscard]] Turn enter(const char* call) { return Turn(*this, call, false); }
  void require_other_thread(const char* call) const;
  void drop_gradients() noexcept;
  void require_own_process(const char* call) const;
  [[nodiscard]] Parameter& parameter_at(const char* call, std::uint32_t parameter);
  void take_gradients_back();

  std::unique_ptr<Engine> engine_;
  std::vector<Parameter> parameters_;
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_{};  ///< the thread that holds mutex_
  pid_t process_;
};

}  // namespace outboard::python
