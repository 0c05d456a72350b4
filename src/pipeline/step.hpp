// SPDX-License-Identifier: Apache-2.0
/// The pipeline of one engine. Read this room from step.cpp on: it follows one step from
/// gradient_ready() to wait().
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/function_ref.hpp"
#include "optim/loss_scaler.hpp"
#include "outboard/config.hpp"
#include "outboard/error.hpp"
#include "outboard/stats.hpp"
#include "pipeline/auto_placement.hpp"
#include "pipeline/bounce_ring.hpp"
#include "pipeline/flow.hpp"
#include "pipeline/gradient_out.hpp"
#include "pipeline/host_sums.hpp"
#include "pipeline/node_shares.hpp"
#include "pipeline/open_gate.hpp"
#include "pipeline/packing.hpp"
#include "pipeline/preparation.hpp"
#include "pipeline/readers.hpp"
#include "pipeline/resident.hpp"
#include "pipeline/scalar_table.hpp"
#include "pipeline/snapshot.hpp"
#include "pipeline/step_gate.hpp"
#include "pipeline/streamed.hpp"
#include "pipeline/update.hpp"
#include "pipeline/weight_in.hpp"
#include "pipeline/whole_state.hpp"
#include "plan/placement.hpp"

namespace outboard::pipeline {

/// One registered parameter, as commit() hands it over.
struct ParameterInput {
  std::string name;
  DType dtype = DType::f16;
  void* weight = nullptr;
  std::uint64_t elems = 0;
  std::uint32_t group = 0;
  std::span<const float> master;
};

/// What a checkpoint holds beside streams and step counts.
struct SavedScalars {
  optim::LossScaler::State loss_scale;
  std::uint64_t steps = 0;  ///< calls of step()
  std::uint64_t applied = 0, skipped = 0, partial = 0;
};

/// What a load brings beside streams.
struct RestoredState {
  std::vector<std::optional<std::uint64_t>> step_counts;  ///< by parameter; none: it stays as it is
  SavedScalars scalars;
};

/// Thread-safe as Engine documents it. Every public function takes the lock itself; every failure
/// of the device poisons the pipeline.
class Pipeline final : private BounceListener,
                       private UpdateListener,
                       private OpenGateListener,
                       private SnapshotListener {
 public:
  struct Model {
    std::span<const optim::Group> groups;  ///< by group id
    std::span<const ParameterInput> parameters;
  };
  /// Allocates everything and loads the initial state. `backend`, `executor` and `machine` must
  /// outlive the pipeline; `model` is not kept.
  Pipeline(device::Backend& backend, exec::Executor& executor, const topology::Machine& machine,
           const Config& config, const Model& model);
  /// Waits for everything in flight.
  ~Pipeline();
  /// Adds a generation: `model.parameters` are the new ones. Between steps; blocks. What is there
  /// already stays where it is. @throws as the constructor; the pipeline is then as it was before,
  /// unless the device is lost.
  void grow(const topology::Machine& machine, const Model& model);
  /// @throws Error{protocol_error} naming the first parameter that has a gradient pending.
  void require_no_gradient(const std::string& call);

  /// `groups`: hyper-parameters by group id, read before this returns (Schedule::open).
  void gradient_ready(ParameterId parameter, const void* gradient, NativeStream stream,
                      std::span<const optim::Group> groups);
  void wait_gradient_taken(ParameterId parameter, NativeStream stream);
  /// `groups`: as in gradient_ready(), read under every schedule.
  StepResult step(std::span<const optim::Group> groups);
  void wait(ParameterId parameter, NativeStream stream);
  void discard();
  void set_accumulation(std::uint32_t micro_batches);
  void set_max_grad_norm(double limit);
  void set_gradient_divisor(double divisor);
  void set_placement(const PlacementChange& change);
  /// @throws Error{protocol_error} where updates of a step begin before step() and it has begun.
  void require_between_steps(const char* call);

  void weights_changed(ParameterId parameter, NativeStream stream);
  void rebind(ParameterId parameter, void* weight);
  void synchronize();
  std::uint64_t state_digest();
  void read_state(ParameterId parameter, std::span<const StateRead> reads);

  // state_access.cpp
  using StateSink = core::FunctionRef<void(std::span<const std::byte>)>;
  using StateFill = core::FunctionRef<void(std::span<std::byte>)>;
  /// Waits until nothing of a step or of dropped gradients is under way; nothing is then, until a
  /// gradient is given. @throws Error{protocol_error} naming a parameter with a gradient pending.
  void prepare_state_access(const std::string& call);
  /// The same for write_pieces(): state that the device has fetched for the next step is stale
  /// then.
  void prepare_state_change(const std::string& call);
  /// Whether all of the state is the host's, so that the two calls below may run on several threads
  /// at a time, for different parameters.
  [[nodiscard]] bool state_on_host();
  /// After prepare_state_access(), without the lock held by the caller: all elements of one of the
  /// parameter's own streams, in order and in pieces, straight from where they lie if that is the
  /// host. `stream`: as StateRead's. What `sink` throws is passed on and poisons nothing.
  void read_pieces(ParameterId parameter, std::size_t stream, StateSink sink);
  /// The same the other way, after prepare_state_change(); `fill` writes all of what it is given.
  void write_pieces(ParameterId parameter, std::size_t stream, StateFill fill);
  /// Between steps: from now on take_piece() gives the state as it is now, whatever follows, until
  /// it is at its end or end_snapshot() is called. Waits only for what the device updates. Every
  /// call below that changes state otherwise than by a step must find none.
  /// `can_go_on`: see Snapshot::Start. @throws as prepare_state_access(); Error{out_of_memory}.
  void begin_snapshot(const std::string& call, std::size_t buffer_bytes,
                      std::function<void()> can_go_on);
  /// From one thread, without the lock. @throws Error{poisoned}.
  Snapshot::Taken take_piece(std::span<std::byte> buffer) { return snapshot_->take(buffer); }
  [[nodiscard]] std::uint64_t snapshot_digest() const noexcept { return snapshot_->digest(); }
  void end_snapshot();
  [[nodiscard]] SavedScalars saved_scalars();
  [[nodiscard]] std::uint32_t accumulation();  ///< micro-batches of the coming steps
  /// After write_pieces(): makes the device's weights from the masters of the parameters with a
  /// step count, rounded as the update that made those was, and waits for them.
  void finish_load(const RestoredState& restored, std::span<const optim::Group> groups);
  /// This pipeline takes the place of one that is gone: of gradients that were given to that one
  /// wait_gradient_taken() may still be called, and nothing reads them any more.
  void take_the_place() noexcept { remade_ = true; }
  /// Every later call throws Error{poisoned} with this cause.
  void poison(const Error& cause);
  /// Whether every call that uses the device would throw.
  [[nodiscard]] bool broken();

  [[nodiscard]] double loss_scale();
  [[nodiscard]] std::uint64_t step_count(ParameterId parameter);
  [[nodiscard]] StepStats stats();
  [[nodiscard]] MemoryLedger ledger();
  /// How the memory turned out: one line per choice.
  [[nodiscard]] std::string describe();

 private:
  // build.cpp
  void create_streams();
  void create_stages();
  void wait_for_work_in_flight() noexcept;
  void release() noexcept;

  // grow.cpp
  struct Mark;
  struct Sizes {
    std::size_t parameters = 0, segments = 0, buckets = 0;
  };
  void settle(std::unique_lock<std::mutex>& lock);
  void add_generation(std::unique_lock<std::mutex>& lock, const topology::Machine& machine,
                      const Model& model);
  void forget_work(const Mark& mark) noexcept;
  void roll_back(Mark& mark) noexcept;
  void append_tables(const topology::Machine& machine, const Model& model);
  void append_parameters(const Model& model);
  void append_buckets(const plan::PlacedModel& placed);
  void append_memory(std::unique_lock<std::mutex>& lock, const topology::Machine& machine);
  void append_host_memory(std::unique_lock<std::mutex>& lock, const topology::Machine& machine);
  [[nodiscard]] std::uint64_t require_host_room(memory::StateHomes homes,
                                                std::span<const memory::SlotSpec> slots,
                                                std::size_t staging_bytes);
  [[nodiscard]] std::optional<std::size_t> unpinned_slots() const;
  [[nodiscard]] BounceRing* largest_ring() const;
  [[nodiscard]] bool all_slots_direct() const;
  [[nodiscard]] bool uploads_fit_queue() const;
  void append_ring();
  void append_packing();
  void append_events();
  void destroy_events(const Sizes& from) noexcept;
  [[nodiscard]] WholeState::Scalars whole_state_scalars() const noexcept;
  void fit_stages();
  void load(std::unique_lock<std::mutex>& lock, std::span<const ParameterInput> parameters,
            const ScalarTable& before);

  // holdings.cpp
  void report_bindings();
  void report_staging();
  void report_strays(const topology::Machine& machine);
  void pin_streamed_state();
  [[nodiscard]] std::string unpinned_staging(const memory::StagingPool& staging) const;
  void add_host_memory(MemoryLedger& ledger) const;
  [[nodiscard]] std::string describe_placement() const;
  [[nodiscard]] std::string describe_pages() const;
  [[nodiscard]] std::int64_t busy_ns() const;

  // moves.cpp
  void require_movable() const;
  void move(std::unique_lock<std::mutex>& lock, const PlacementChange& change);
  void move_to(std::unique_lock<std::mutex>& lock, const std::vector<plan::Home>& homes,
               std::size_t budget_bytes);
  [[nodiscard]] Placement without_kernels_on_host(Placement placement) const;
  void require_kernels(const std::vector<plan::Home>& homes, const char* call) const;
  void require_streamable(const std::vector<plan::Home>& homes, const char* call) const;
  enum class Keep : std::uint8_t { nothing, held };  ///< of what is held on the device now
  [[nodiscard]] DeviceRoom device_room(const std::vector<plan::Home>& homes,
                                       std::size_t budget_bytes, Keep keep) const;
  void allocate_on_device(std::size_t budget_bytes);
  void leave_device() noexcept;
  void wait_for_idle(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] std::unique_ptr<AutoPlacement> start_automatic(std::unique_lock<std::mutex>& lock);
  void place_automatically(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] std::uint64_t automatic_budget() const;
  [[nodiscard]] std::span<std::byte> trial_memory() const;

  // step.cpp
  void require_gradient_allowed(const Parameter& parameter, const void* gradient) const;
  void require_range(const Parameter& parameter, const char* what, const void* address) const;
  void require_closed(const char* call) const;
  void require_none_pending(const std::string& call) const;
  void require_weight_at_rest(const std::string& call, const Parameter& parameter) const;
  [[nodiscard]] bool any_gradient() const;
  [[nodiscard]] bool gradient_complete(const Parameter& parameter) const;
  void step_open(std::unique_lock<std::mutex>& lock, std::span<const optim::Group> groups,
                 StepResult& result);
  void finish_open(StepResult& result);
  void complete_sums(std::unique_lock<std::mutex>& lock);
  static void reduce_sum(void* self, std::uint64_t segment, std::uint32_t part) noexcept;
  static void sum_reduced(void* self, std::uint64_t segment) noexcept;
  void wait_for_last_step(std::unique_lock<std::mutex>& lock);
  void apply(std::unique_lock<std::mutex>& lock, std::span<const optim::Group> groups,
             double coeff);
  void begin_update(std::span<const optim::Group> groups, double coeff);
  void order_uploads_behind_readers();
  void start_updates();
  [[nodiscard]] std::byte* overflow_counts() const;
  void upload_serially(std::unique_lock<std::mutex>& lock);
  void finish_in_step(std::unique_lock<std::mutex>& lock);
  void synchronize_uploads(std::unique_lock<std::mutex>& lock);
  void synchronize_all(std::unique_lock<std::mutex>& lock);
  void update_on_device();
  void skip();
  void report_weight_overflows();
  void warn(std::string text);  ///< nothing if empty
  void tell(LogLevel level, std::string text);
  void deliver_news() noexcept;
  /// Hands news to the sink when a public call ends, without the lock: a sink may call back.
  struct Delivery {
    explicit Delivery(Pipeline& owner) : pipeline(owner) {}
    ~Delivery() { pipeline.deliver_news(); }
    Delivery(const Delivery&) = delete;
    Delivery& operator=(const Delivery&) = delete;
    Pipeline& pipeline;
  };

  void gradient_drained(std::uint32_t segment) noexcept override;
  void weight_queued(std::uint32_t bucket) noexcept override;
  void bucket_updated(Ticket ticket) noexcept override;
  void bucket_secured(std::uint32_t bucket) noexcept override;
  void parameter_joins(std::uint32_t parameter) override;
  void bucket_opens(std::uint32_t bucket) override;

  /// Runs a public call: refuses a poisoned pipeline, and poisons it if the device fails.
  template <class Call>
  auto guarded(Call&& call);

  Config config_;
  Flow flow_;
  NodeShares node_shares_;
  std::vector<bool> host_room_;  // by bucket
  std::size_t slots_ = 0;        // buckets with room on the host
  std::string strays_;           // what report_strays() has told
  ScalarTable scalars_;
  device::Event uploads_passed_;
  bool streams_created_ = false;
  bool remade_ = false;
  std::vector<std::uint64_t> reported_overflows_;
  bool told_unpinned_state_ = false;
  std::uint64_t steps_ = 0;
  std::uint64_t norms_pending_ = 0;  // tasks that take the norm of a sum
  std::int64_t busy_before_ns_ = 0;  // the nodes' time in commit()
  std::vector<std::pair<LogLevel, std::string>>
      news_;  // not delivered; guarded by the flow's mutex
  std::atomic<bool> any_news_{false};

  Preparation preparation_{flow_, config_.log};
  std::optional<Readers> readers_;
  std::optional<Resident> resident_;
  std::optional<Streamed> streamed_;
  std::optional<HostSums> host_sums_;
  std::optional<StepGate> gate_;
  std::optional<WeightIn> weight_in_;
  std::optional<Snapshot> snapshot_;
  std::optional<Update> update_;
  std::optional<GradientOut> gradient_out_;
  std::vector<std::unique_ptr<BounceRing>> rings_;  // as Flow::rings
  std::vector<std::unique_ptr<Packing>> packings_;  // as Flow::packings
  std::optional<WholeState> whole_state_;
  std::unique_ptr<AutoPlacement> auto_;  // Placement::automatic
  std::optional<OpenGate> open_gate_;
};

}  // namespace outboard::pipeline
