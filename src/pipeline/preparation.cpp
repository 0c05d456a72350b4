// SPDX-License-Identifier: Apache-2.0
#include "pipeline/preparation.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/round_up.hpp"

namespace outboard::pipeline {
namespace {

constexpr std::int64_t kTellEveryNs = 2'000'000'000;
/// Of a node between two looks at the clock: some tens of milliseconds of one thread.
constexpr std::size_t kPieceBytes = std::size_t{256} << 20;
/// A part begins where a huge page does.
constexpr std::size_t kPartBytes = std::size_t{2} << 20;
/// Below this the tasks cost more than they bring.
constexpr std::size_t kSmallBytes = std::size_t{1} << 20;

std::string show_gib(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", static_cast<double>(bytes) / 1073741824.0);
  return text.data();
}

std::string show_seconds(std::int64_t ns) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", static_cast<double>(ns) * 1e-9);
  return text.data();
}

std::uint64_t total(std::span<const memory::FreshMemory> fresh) {
  std::uint64_t bytes = 0;
  for (const memory::FreshMemory& one : fresh) bytes += one.bytes.size();
  return bytes;
}

}  // namespace

void Preparation::begin(std::uint64_t bytes) {
  all_bytes_ = bytes;
  ready_bytes_ = 0;
  began_ns_ = told_ns_ = flow_.backend.now_ns();
  told_ = false;
}

bool Preparation::touch(std::unique_lock<std::mutex>& lock,
                        std::span<const memory::FreshMemory> fresh, Ready ready) {
  const auto count_ready = [&](std::span<const memory::FreshMemory> touched) {
    if (ready == Ready::when_touched) count(total(touched));
  };
  if (total(fresh) < kSmallBytes) {
    const bool there = memory::touch_here(fresh);
    count_ready(fresh);
    return there;
  }
  refused_.store(false);
  for (std::size_t from = 0; !refused_.load(); from += kPieceBytes) {
    pieces_.clear();
    for (const memory::FreshMemory& one : fresh) {
      if (from >= one.bytes.size()) continue;
      const std::size_t bytes = std::min(one.bytes.size() - from, kPieceBytes);
      pieces_.push_back({one.node, one.bytes.subspan(from, bytes)});
    }
    if (pieces_.empty()) return true;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      exec::Task task;
      task.node = pieces_[i].node;
      task.parts = flow_.executor.threads(task.node);
      task.body = &Preparation::touch_part;
      task.done = &Preparation::touched;
      task.context = this;
      task.argument = i;
      flow_.post(task);
    }
    wait(
        lock, [&] { return flow_.tasks_pending == 0; }, "commit(): host memory");
    count_ready(pieces_);
  }
  return false;
}

void Preparation::touch_part(void* self, std::uint64_t piece, std::uint32_t part) noexcept {
  auto& preparation = *static_cast<Preparation*>(self);
  const memory::FreshMemory& fresh = preparation.pieces_[piece];
  const std::size_t parts = preparation.flow_.executor.threads(fresh.node);
  const std::size_t each = core::round_up((fresh.bytes.size() + parts - 1) / parts, kPartBytes);
  const std::size_t from = std::min(fresh.bytes.size(), each * part);
  const std::size_t bytes = std::min(fresh.bytes.size() - from, each);
  if (memory::bring_in(fresh.bytes.subspan(from, bytes)) != 0) preparation.refused_.store(true);
}

void Preparation::touched(void* self, std::uint64_t /*piece*/) noexcept {
  auto& preparation = *static_cast<Preparation*>(self);
  const std::lock_guard lock(preparation.flow_.mutex);
  preparation.flow_.finish_task();
}

bool Preparation::due() const {
  return log_ && flow_.backend.now_ns() - told_ns_ >= kTellEveryNs;
}

void Preparation::wait(std::unique_lock<std::mutex>& lock, core::FunctionRef<bool()> condition,
                       const char* who) {
  for (;;) {
    flow_.backend.waiter().wait(
        lock, [&] { return condition() || due(); }, who);
    if (due()) {
      tell(lock, show_gib(std::min(ready_bytes_, all_bytes_)) + " of " + show_gib(all_bytes_) +
                     " GiB of host memory are ready");
    }
    if (condition()) return;
  }
}

void Preparation::end(std::unique_lock<std::mutex>& lock) {
  if (told_) tell(lock, show_gib(all_bytes_) + " GiB of host memory are ready");
}

void Preparation::tell(std::unique_lock<std::mutex>& lock, const std::string& what) {
  told_ns_ = flow_.backend.now_ns();
  told_ = true;
  lock.unlock();
  try {
    log_(LogLevel::info,
         "commit(): " + what + " after " + show_seconds(told_ns_ - began_ns_) + " s");
  } catch (...) {  // a sink that fails must not fail the commit
  }
  lock.lock();
}

}  // namespace outboard::pipeline
