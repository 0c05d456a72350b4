// SPDX-License-Identifier: Apache-2.0
#include "engine/background.hpp"

#include <string>
#include <system_error>
#include <utility>

#include "outboard/error.hpp"

namespace outboard::engine {

Background::~Background() {
  if (thread_.joinable()) thread_.join();
  if (loop_ != nullptr) loop_->forget(this);
}

void Background::start(Work work) {
  if (thread_.joinable()) thread_.join();
  work_ = std::move(work);
  ended_ = false;
  if (loop_ != nullptr) return schedule(0);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& failure) {
    throw Error(ErrorCode::out_of_memory, std::string("save_async(): no thread to save on: ") +
                                              failure.what() +
                                              "; raise the limit on processes, or use save()");
  }
}

void Background::wake() noexcept {
  if (loop_ != nullptr) {
    wake_ = true;
    if (idle_ && !ended_) schedule(0);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    wake_ = true;
  }
  woken_.notify_one();
}

void Background::run() {
  for (;;) {
    const Piece piece = work_();
    if (piece.next == Piece::Next::end) return;
    if (piece.next == Piece::Next::again) continue;
    std::unique_lock lock(mutex_);
    woken_.wait(lock, [&] { return wake_; });
    wake_ = false;
  }
}

void Background::schedule(std::int64_t delay_ns) {
  idle_ = false;
  loop_->after(delay_ns, {&Background::on_event, this, 0});
}

void Background::on_event(void* self, std::uint64_t /*none*/) noexcept {
  auto& background = *static_cast<Background*>(self);
  background.wake_ = false;
  const Piece piece = background.work_();
  background.ended_ = piece.next == Piece::Next::end;
  background.idle_ = true;
  if (piece.next == Piece::Next::again) return background.schedule(piece.busy_ns);
  if (background.wake_ && !background.ended_) background.schedule(0);
}

}  // namespace outboard::engine
