// SPDX-License-Identifier: Apache-2.0
/// Streams for the time in which a later commit() loads: what it has queued when it fails is waited
/// for by destroying them, and the engine's own are as they were.
#pragma once

#include <array>
#include <mutex>

#include "pipeline/flow.hpp"

namespace outboard::pipeline {

/// Takes the places of Flow's down, up and norm; nothing may be under way on those. Gives the
/// places back when it goes, behind all that its own have held.
class LoadStreams {
 public:
  LoadStreams(std::unique_lock<std::mutex>& lock, Flow& flow)
      : lock_(lock), flow_(flow), own_{flow.down, flow.up, flow.norm} {
    constexpr std::array<const char*, 3> names = {"commit, down", "commit, up", "commit, norm"};
    try {
      for (std::size_t i = 0; i < names.size(); ++i) {
        *places()[i] = {};
        *places()[i] = flow.backend.create_stream(names[i]);
      }
    } catch (...) {
      give_back();
      throw;
    }
  }
  ~LoadStreams() { give_back(); }
  LoadStreams(const LoadStreams&) = delete;
  LoadStreams& operator=(const LoadStreams&) = delete;

 private:
  [[nodiscard]] std::array<NativeStream*, 3> places() const noexcept {
    return {&flow_.down, &flow_.up, &flow_.norm};
  }
  void give_back() noexcept {
    const std::array<NativeStream, 3> taken = {flow_.down, flow_.up, flow_.norm};
    for (std::size_t i = 0; i < own_.size(); ++i) *places()[i] = own_[i];
    if (lock_.owns_lock()) lock_.unlock();  // destroying one may wait for a callback
    for (std::size_t i = 0; i < own_.size(); ++i) {
      const bool gone = taken[i] == NativeStream{} || taken[i] == own_[i];
      if (!gone) flow_.backend.destroy_stream(taken[i]);
    }
    lock_.lock();
  }

  std::unique_lock<std::mutex>& lock_;
  Flow& flow_;
  std::array<NativeStream, 3> own_;
};

}  // namespace outboard::pipeline
