// SPDX-License-Identifier: Apache-2.0
/// 32-bit handles that carry a check: one of another device, or of something destroyed, is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "outboard/error.hpp"

namespace outboard::device {

/// Objects of one kind of one device. 20 bits of a handle are the index, 12 the check (6 of the
/// device's tag, 6 of the slot's generation). Not thread-safe.
template <class State>
class HandleTable {
 public:
  HandleTable(std::uint32_t tag, const char* kind) : tag_(tag), kind_(kind) {}

  [[nodiscard]] std::size_t live() const noexcept { return slots_.size() - free_.size(); }

  std::uint32_t create() {
    if (free_.empty()) {
      if (slots_.size() == kMaxSlots) {
        throw Error(ErrorCode::out_of_memory, std::string("too many of one kind: ") + kind_ + ", " +
                                                  std::to_string(kMaxSlots) +
                                                  " are live; destroy some");
      }
      free_.reserve(slots_.size() + 1);  // so that destroy() never allocates
      slots_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    slots_[index].state = State{};
    slots_[index].live = true;
    return handle_of(index);
  }

  /// @return false if the handle names nothing live.
  bool destroy(std::uint32_t handle) noexcept {
    if (find(handle) == nullptr) return false;
    Slot& slot = slots_[handle & kIndexMask];
    slot.live = false;
    ++slot.generation;
    free_.push_back(handle & kIndexMask);
    return true;
  }

  template <class Use>
  void for_each(Use use) {
    for (Slot& slot : slots_) {
      if (slot.live) use(slot.state);
    }
  }

  [[nodiscard]] State* find(std::uint32_t handle) noexcept {
    const std::uint32_t index = handle & kIndexMask;
    if (index >= slots_.size() || !slots_[index].live || handle_of(index) != handle) return nullptr;
    return &slots_[index].state;
  }

  [[nodiscard]] const State* find(std::uint32_t handle) const noexcept {
    return const_cast<HandleTable*>(this)->find(handle);
  }

  /// @throws Error{invalid_argument}.
  [[nodiscard]] State& at(std::uint32_t handle, const char* call) {
    if (State* state = find(handle)) return *state;
    throw Error(ErrorCode::invalid_argument, std::string(call) + ": no live " + kind_ +
                                                 " of this device has handle " +
                                                 std::to_string(handle));
  }
  [[nodiscard]] const State& at(std::uint32_t handle, const char* call) const {
    return const_cast<HandleTable*>(this)->at(handle, call);
  }

 private:
  struct Slot {
    State state;
    std::uint32_t generation = 0;
    bool live = false;
  };
  static constexpr std::uint32_t kIndexMask = 0xFFFFF;
  static constexpr std::size_t kMaxSlots = kIndexMask;  // the all-ones index stays unused

  [[nodiscard]] std::uint32_t handle_of(std::uint32_t index) const noexcept {
    return ((tag_ & 63u) << 26) | ((slots_[index].generation & 63u) << 20) | index;
  }

  std::uint32_t tag_;
  const char* kind_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace outboard::device
