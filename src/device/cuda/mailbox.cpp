// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/mailbox.hpp"

#include <cfenv>

namespace outboard::device::cuda {

Mailbox::Mailbox(core::VirtualLoop* loop) : loop_(loop) {
  if (loop_ == nullptr) thread_ = std::thread([this] { run(); });
}

Mailbox::~Mailbox() {
  close();
}

Mailbox::Note* Mailbox::write(core::Callback callback, Pending& pending) {
  const Lock lock(mutex_);
  if (free_ == nullptr) free_ = &notes_.emplace_back();
  Note* const note = free_;
  free_ = note->next;
  *note = {callback, this, &pending, nullptr};
  pending.fetch_add(1);
  return note;
}

void Mailbox::cancel(Note* note) noexcept {
  const Lock lock(mutex_);
  recycle(note);
}

void Mailbox::arrive(void* pointer) noexcept {
  auto* const note = static_cast<Note*>(pointer);
  Mailbox& box = *note->box;
  Lock lock(box.mutex_);
  if (box.loop_ != nullptr) return box.deliver(lock, note);
  (box.first_ == nullptr ? box.first_ : box.last_->next) = note;
  box.last_ = note;
  box.changed_.notify_one();
}

void Mailbox::wait_idle(const Pending& pending) {
  Lock lock(mutex_);
  idle_.wait(lock, [&] { return closed_ || pending.load() == 0; });
}

void Mailbox::close() noexcept {
  {
    const Lock lock(mutex_);
    closed_ = true;
    changed_.notify_one();
    idle_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Mailbox::run() noexcept {
  std::fesetenv(FE_DFL_ENV);  // a thread inherits its maker's rounding and flush-to-zero modes
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || first_ != nullptr; });
    if (closed_) return;
    Note* const note = first_;
    first_ = note->next;
    deliver(lock, note);
  }
}

/// The callback runs without the mutex: it may write notes, and others arrive meanwhile.
void Mailbox::deliver(Lock& lock, Note* note) noexcept {
  const core::Callback callback = note->callback;
  const bool call = !closed_;
  lock.unlock();
  if (call) callback();
  lock.lock();
  recycle(note);
}

void Mailbox::recycle(Note* note) noexcept {
  if (note->pending->fetch_sub(1) == 1) idle_.notify_all();
  note->next = free_;
  free_ = note;
}

}  // namespace outboard::device::cuda
