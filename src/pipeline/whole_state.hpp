// SPDX-License-Identifier: Apache-2.0
/// Work over the whole state between steps: first load, re-reading a weight, moves, digest,
/// read-out. What the host's cores do of it is in state_passes.cpp.
/// Everything here blocks its caller and expects that no update is running.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/flow.hpp"
#include "pipeline/resident.hpp"

namespace outboard::pipeline {

/// A copy of one stream of a parameter's state.
struct StateRead {
  std::size_t stream =
      0;                 ///< among the parameter's own: 0 the master, then its rule's, its average
  std::span<float> out;  ///< of the parameter's size
};

/// An update that moves nothing, of a gradient that is zero: what it leaves is the rounded weight.
inline constexpr simd::SgdScalars kRefreshScalars{};

class WholeState {
 public:
  /// Device memory and its pinned host copy: GradientScalars for each parameter, and one
  /// std::uint64_t for digests of resident state. Free to use between steps.
  struct Scalars {
    void* device = nullptr;
    std::span<std::byte> host;
    std::byte* device_counts = nullptr;  ///< of weights made infinite: std::uint64_t for each
    void* device_sum = nullptr;
    std::span<std::byte> host_sum;
  };
  WholeState(Flow& flow, Resident& resident, const Scalars& scalars);
  ~WholeState();
  WholeState(const WholeState&) = delete;
  WholeState& operator=(const WholeState&) = delete;

  /// The scalars lie elsewhere now. Between steps.
  void set_scalars(const Scalars& scalars) noexcept { scalars_ = scalars; }
  /// The state of the last generation, whose parameters' masters come from `masters[i]` if not
  /// empty (the device weight follows), else from the device weight; averages as the masters, the
  /// rest as the rules begin. Touches every page of that state once, on its node.
  /// @throws Error{invalid_argument} naming the first NaN or Inf.
  void load(std::unique_lock<std::mutex>& lock, std::span<const std::span<const float>> masters);
  /// Masters of one parameter from its device weight, behind `stream`.
  /// @throws Error{invalid_argument} naming the first NaN or Inf; nothing has changed then.
  void reread(std::unique_lock<std::mutex>& lock, std::uint32_t parameter, NativeStream stream);
  /// The state of every resident bucket from the device to its room on the host, or back, of
  /// buckets from `first` on. Waits.
  void move_to_host(std::unique_lock<std::mutex>& lock);
  void move_to_device(std::unique_lock<std::mutex>& lock, std::uint32_t first = 0);
  /// Digest of all streams, step counts and the loss scale.
  std::uint64_t digest(std::unique_lock<std::mutex>& lock, double loss_scale);
  /// The same without the elements whose state is the host's.
  std::uint64_t digest_beside_host(std::unique_lock<std::mutex>& lock, double loss_scale);
  void read(std::unique_lock<std::mutex>& lock, std::uint32_t parameter,
            std::span<const StateRead> reads);
  /// Elements of a resident segment's stream, from `first` of the segment on. Waits.
  struct ResidentPiece {
    const plan::Segment& segment;
    std::size_t stream = 0;  ///< of its generation
    std::uint64_t first = 0;
  };
  void copy_out(std::unique_lock<std::mutex>& lock, const ResidentPiece& piece,
                std::span<std::byte> out);
  void copy_in(std::unique_lock<std::mutex>& lock, const ResidentPiece& piece,
               std::span<const std::byte> in);
  /// The weights of these parameters, by index, from their masters: rounded as the update that led
  /// to their step count rounded, and as commit() does where that is 0. Waits.
  void refresh_weights(std::unique_lock<std::mutex>& lock, const std::vector<bool>& parameters,
                       std::span<const optim::Group> groups);
  /// One of a parameter's own streams among its generation's.
  [[nodiscard]] static std::size_t stream_of(const Parameter& parameter, std::size_t own) noexcept {
    return own <= parameter.rule_streams ? own : parameter.ema_stream;
  }

 private:
  enum class Job : std::uint8_t { load, reread, refresh, digest };
  struct Cut;
  void run(std::unique_lock<std::mutex>& lock, Job job, plan::SegmentRange only);
  void synchronize(std::unique_lock<std::mutex>& lock, NativeStream stream, const char* who);
  void require_finite_weights(std::unique_lock<std::mutex>& lock, const char* call,
                              std::span<const std::uint32_t> parameters);
  void require_finite_masters() const;
  [[nodiscard]] plan::SegmentRange loaded_segments() const;
  void copy_weights_to_slots(plan::SegmentRange range);
  void load_host(std::unique_lock<std::mutex>& lock);
  void load_resident(std::unique_lock<std::mutex>& lock);
  void load_resident(const plan::Segment& segment, std::vector<std::vector<std::byte>>& weights);
  [[nodiscard]] std::size_t stream_of(std::uint32_t parameter, const StateRead& read) const {
    return stream_of(flow_.parameters[parameter], read.stream);
  }
  void read_host(const plan::Segment& segment, std::span<const StateRead> reads);
  void queue_reads(const plan::Segment& segment, std::span<const StateRead> reads);
  /// Runs `work`, which queues copies on the up stream that use memory of its caller. If it fails,
  /// waits until nothing uses that memory.
  template <class Work>
  void with_borrowed_memory(std::unique_lock<std::mutex>& lock, Work work);
  void count_loaded(std::uint32_t bucket) noexcept;
  void load_part(std::uint32_t bucket, std::uint32_t part) noexcept;
  void load_cut(const Cut& cut) noexcept;
  void refresh_part(std::uint32_t bucket, std::uint32_t part) noexcept;
  void refresh_resident(const plan::Segment& segment);
  void reread_part(std::uint32_t bucket, std::uint32_t part) noexcept;
  void digest_part(std::uint32_t bucket, std::uint32_t part) noexcept;
  std::uint64_t digest_host(std::unique_lock<std::mutex>& lock);
  std::uint64_t digest_resident(std::unique_lock<std::mutex>& lock);
  template <class Use>
  void for_each_resident_stream(std::uint32_t first, Use use) const;
  [[nodiscard]] std::span<const float> master(std::uint32_t parameter) const {
    return masters_[parameter - first_parameter_];
  }
  template <class Use>
  void for_each_segment(plan::SegmentRange range, bool resident, Use use) const;
  template <class Use>
  void for_each_cut(std::uint32_t bucket, std::uint32_t part, Use use) noexcept;
  // Without the lock, on an executor thread:
  static void body(void* self, std::uint64_t argument, std::uint32_t part) noexcept;
  static void done(void* self, std::uint64_t argument) noexcept;

  Flow& flow_;
  Resident& resident_;
  Scalars scalars_;
  device::Event passed_;
  Job job_ = Job::load;
  std::uint32_t only_parameter_ = 0;
  std::span<const std::span<const float>> masters_;            // of the parameters that are loaded
  std::uint32_t first_parameter_ = 0;                          // the first of those
  std::vector<std::optional<simd::UpdateOptions>> refreshed_;  // by parameter, while they are
  std::atomic<std::uint64_t> sum_{0};
};

}  // namespace outboard::pipeline
