// SPDX-License-Identifier: Apache-2.0
#include "pipeline/rates.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "optim/rule_scalars.hpp"
#include "simd/reduce.hpp"

namespace outboard::pipeline {
namespace {

constexpr std::uint32_t kRepeats = 8;
constexpr std::size_t kSmallBytes = 64;
constexpr std::uint64_t kSmallElems = 64;
constexpr std::uint64_t kBlock = simd::kReduceBlockElems;
/// 16-bit gradient and weight, three FP32 streams.
constexpr std::uint64_t kScratchBytesPerElem = 16;

/// Device memory and events, for the time of the trials.
class Trials {
 public:
  Trials(std::unique_lock<std::mutex>& lock, Flow& flow, std::span<std::byte> host)
      : lock_(lock), flow_(flow), host_(host) {}
  ~Trials() {
    for (const device::Event event : events_) {
      if (event.index != device::Event{}.index) flow_.backend.destroy_event(event);
    }
    if (scratch_ != nullptr) flow_.backend.release(scratch_);
  }
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  /// A trial that fails leaves the engine's streams destroyed: what they held uses the scratch
  /// memory.
  plan::Rates run() {
    try {
      return measure();
    } catch (...) {
      if (lock_.owns_lock()) lock_.unlock();
      for (NativeStream* stream : {&flow_.down, &flow_.up, &flow_.norm}) {
        const NativeStream gone = std::exchange(*stream, NativeStream{});
        if (gone != NativeStream{}) flow_.backend.destroy_stream(gone);
      }
      lock_.lock();
      throw;
    }
  }

 private:
  plan::Rates measure() {
    plan::Rates rates;
    rates.node_elems_per_s.assign(flow_.executor.nodes(), 0.0);
    if (!take_scratch()) return rates;
    for (device::Event& event : events_) event = flow_.backend.create_timed_event();
    flow_.backend.fill_zero(flow_.up, scratch_, elems_ * kScratchBytesPerElem);
    flow_.backend.record(events_[0], flow_.up);
    wait(events_[0]);
    measure_link(rates);
    measure_kernels(rates);
    return rates;
  }

  /// @return false if the device has no room for a block.
  bool take_scratch() {
    const device::MemoryInfo memory = flow_.backend.memory();
    const std::uint64_t room = (memory.limit_bytes - memory.used_bytes) / 2 / kScratchBytesPerElem;
    elems_ = std::min<std::uint64_t>(host_.size() / 2, room) / kBlock * kBlock;
    if (elems_ == 0) return false;
    try {
      scratch_ = static_cast<std::byte*>(
          flow_.backend.allocate(elems_ * kScratchBytesPerElem + sizeof(device::GradientScalars)));
    } catch (const Error& failure) {
      if (failure.code() != ErrorCode::out_of_memory) throw;
      return false;
    }
    return true;
  }

  void wait(device::Event event) {
    flow_.synchronize(lock_, event, "trials of the device's speed");
  }

  struct Both {
    double down_us = 0.0, up_us = 0.0;  ///< of one copy
  };
  /// Both directions together, each in its own half of the host's memory and of the device's.
  Both copy(std::size_t bytes) {
    const std::size_t half = elems_;
    flow_.backend.record(events_[0], flow_.down);
    flow_.backend.record(events_[2], flow_.up);
    for (std::uint32_t i = 0; i < kRepeats; ++i) {
      flow_.backend.copy_to_host(host_.first(bytes), scratch_, flow_.down);
      flow_.backend.copy_to_device(scratch_ + half, host_.subspan(half, bytes), flow_.up);
    }
    flow_.backend.record(events_[1], flow_.down);
    flow_.backend.record(events_[3], flow_.up);
    wait(events_[1]);
    wait(events_[3]);
    return {flow_.backend.elapsed_us(events_[0], events_[1]) / kRepeats,
            flow_.backend.elapsed_us(events_[2], events_[3]) / kRepeats};
  }

  static double rate(double amount, double us) { return us > 0.0 ? amount * 1e6 / us : 0.0; }

  void measure_link(plan::Rates& rates) {
    const std::size_t bytes = elems_;  // half of what `elems_` 16-bit elements take
    const Both small = copy(kSmallBytes);
    const Both large = copy(bytes);
    rates.copy_us = std::min(small.down_us, small.up_us);
    const auto more = static_cast<double>(bytes - kSmallBytes);
    rates.link_down_bytes_per_s = rate(more, large.down_us - small.down_us);
    rates.link_up_bytes_per_s = rate(more, large.up_us - small.up_us);
  }

  template <class Queue>
  double kernel_us(Queue queue) {
    flow_.backend.record(events_[0], flow_.norm);
    for (std::uint32_t i = 0; i < kRepeats; ++i) queue();
    flow_.backend.record(events_[1], flow_.norm);
    wait(events_[1]);
    return flow_.backend.elapsed_us(events_[0], events_[1]) / kRepeats;
  }

  double update_us(std::uint64_t elems) {
    device::DeviceUpdate arguments;
    arguments.grad = {scratch_, simd::Format::f16};
    arguments.weight = {scratch_ + elems_ * 2, simd::Format::f16};
    arguments.param = scratch_ + elems_ * 4;
    arguments.state = {scratch_ + elems_ * 8, scratch_ + elems_ * 12};
    arguments.elems = elems;
    arguments.scalars = optim::scalars(AdamW{}, 1, 1.0);
    return kernel_us([&] { flow_.backend.update(flow_.norm, arguments); });
  }

  double norm_us(std::uint64_t elems) {
    return kernel_us([&] {
      flow_.backend.reduce_gradient(flow_.norm, {scratch_, simd::Format::f16}, elems,
                                    scratch_ + elems_ * kScratchBytesPerElem);
    });
  }

  double sum_us(std::uint64_t elems) {
    return kernel_us([&] {
      flow_.backend.accumulate(flow_.norm, {.grad = {scratch_, simd::Format::f16},
                                            .sum_fp32 = scratch_ + elems_ * 4,
                                            .elems = elems,
                                            .first = false});
    });
  }

  void measure_kernels(plan::Rates& rates) {
    const double small_update = update_us(kSmallElems);
    const double small_norm = norm_us(kSmallElems);
    const auto more = static_cast<double>(elems_ - kSmallElems);
    rates.device_elems_per_s = rate(more, update_us(elems_) - small_update);
    rates.norm_elems_per_s = rate(more, norm_us(elems_) - small_norm);
    if (flow_.options.micro_batches > 0) {
      rates.device_sums_per_s = rate(more, sum_us(elems_) - sum_us(kSmallElems));
    }
    const auto fixed = [](double us, double per_s) {
      return std::max(0.0, us - plan::duration_us(kSmallElems, per_s));
    };
    rates.kernel_us = std::min(fixed(small_update, rates.device_elems_per_s),
                               fixed(small_norm, rates.norm_elems_per_s));
  }

  std::unique_lock<std::mutex>& lock_;
  Flow& flow_;
  std::span<std::byte> host_;
  std::byte* scratch_ = nullptr;
  std::uint64_t elems_ = 0;
  std::array<device::Event, 4> events_{};
};

}  // namespace

plan::Rates measure_rates(std::unique_lock<std::mutex>& lock, Flow& flow,
                          std::span<std::byte> host) {
  return Trials(lock, flow, host).run();
}

}  // namespace outboard::pipeline
