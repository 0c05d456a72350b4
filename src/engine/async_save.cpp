// SPDX-License-Identifier: Apache-2.0
#include "engine/async_save.hpp"

#include <atomic>
#include <cmath>
#include <functional>
#include <mutex>
#include <utility>

#include "ckpt/format.hpp"
#include "outboard/error.hpp"

namespace outboard {

/// Shared by the engine and a ticket, each of which may be gone before the other.
struct SaveTicket::State {
  std::mutex mutex;
  bool ended = false;
  bool told = false;  ///< to whom it concerns
  SaveReport report;
  std::optional<Error> failure;
  std::atomic<std::uint64_t> written{0};
  std::uint64_t bytes = 0;
  /// Until it has ended: whom to wait with, and what to do where nothing else will happen.
  core::Waiter* waiter = nullptr;
  std::function<void()> look_around;

  void wait() {
    std::unique_lock lock(mutex);
    if (ended) return;
    waiter->wait(
        lock,
        [this] {
          if (!ended) look_around();
          return ended;
        },
        "a save that runs");
  }
};

SaveTicket::SaveTicket(std::shared_ptr<State> state) : state_(std::move(state)) {}
SaveTicket::~SaveTicket() = default;
SaveTicket::SaveTicket(SaveTicket&&) noexcept = default;
SaveTicket& SaveTicket::operator=(SaveTicket&&) noexcept = default;

bool SaveTicket::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ended;
}

SaveTicket::Progress SaveTicket::progress() const {
  return {state_->written.load(), state_->bytes};
}

SaveReport SaveTicket::wait() {
  state_->wait();
  const std::lock_guard lock(state_->mutex);
  state_->told = true;
  if (state_->failure) throw Error(*state_->failure);
  return state_->report;
}

namespace engine {

AsyncSave::AsyncSave(device::Backend& backend)
    : backend_(backend), background_(backend.virtual_loop()) {}

SaveTicket AsyncSave::start(ckpt::FileSystem& files, pipeline::Pipeline& pipeline, What what) {
  save_.emplace(files, what.folder, std::move(what.request));
  auto state = std::make_shared<SaveTicket::State>();
  state->bytes = save_->bytes();
  state->waiter = &backend_.waiter();
  state->look_around = [this] {
    if (pipeline_->broken()) background_.wake();
  };
  const auto before = std::exchange(state_, state);
  pipeline_ = &pipeline;
  try {
    buffer_.resize(ckpt::kPieceBytes);
    pipeline.begin_snapshot("save_async()", what.snapshot_bytes, [this] { background_.wake(); });
    background_.start([this] { return piece(); });
  } catch (...) {
    state_ = before;
    pipeline.end_snapshot();
    save_.reset();
    throw;
  }
  news_told_ = false;
  return SaveTicket(std::move(state));
}

Background::Piece AsyncSave::piece() {
  try {
    return go_on();
  } catch (const Error& failure) {
    end({}, &failure);
  } catch (const std::exception& failure) {
    const Error error(ErrorCode::io_failure, std::string("save_async(): ") + failure.what());
    end({}, &error);
  }
  return {};
}

Background::Piece AsyncSave::go_on() {
  using Next = Background::Piece::Next;
  const pipeline::Snapshot::Taken taken = pipeline_->take_piece(buffer_);
  switch (taken.outcome) {
    case pipeline::Snapshot::Outcome::later:
      return {Next::later, 0};
    case pipeline::Snapshot::Outcome::piece:
      break;
    case pipeline::Snapshot::Outcome::end:
      const std::uint64_t digest = pipeline_->snapshot_digest();
      const ckpt::SavedCheckpoint saved = save_->finish(digest);
      end(SaveReport{saved.folder, saved.bytes, digest, saved.note}, nullptr);
      return {};
  }
  save_->write(std::span(buffer_).first(taken.bytes));
  state_->written += taken.bytes;
  const double rate = backend_.disk_bytes_per_s();
  const double busy_ns = rate > 0.0 ? static_cast<double>(taken.bytes) * 1e9 / rate : 0.0;
  return {Next::again, std::llround(busy_ns)};
}

/// The folder is unlocked, and rests of an attempt are gone, before anybody hears of it.
void AsyncSave::end(std::optional<SaveReport> report, const Error* failure) noexcept {
  save_.reset();
  pipeline_->end_snapshot();
  {
    const std::lock_guard lock(state_->mutex);
    if (report) state_->report = std::move(*report);
    if (failure != nullptr) state_->failure = *failure;
    if (failure == nullptr) state_->written = state_->bytes;
    state_->ended = true;
    state_->look_around = nullptr;
  }
  backend_.waiter().wake();
}

void AsyncSave::finish() noexcept {
  if (!state_) return;
  try {
    state_->wait();
  } catch (const Error& failure) {  // a deadlock in virtual time: nothing of it can go on
    end({}, &failure);
  }
}

void AsyncSave::throw_untold() {
  if (!state_ || state_.use_count() > 1) return;
  const std::lock_guard lock(state_->mutex);
  if (!state_->failure || std::exchange(state_->told, true)) return;
  throw Error(*state_->failure);
}

std::optional<AsyncSave::News> AsyncSave::news() {
  if (!state_ || news_told_) return {};
  const std::lock_guard lock(state_->mutex);
  if (!state_->ended) return {};
  news_told_ = true;
  return News{state_->report, state_->failure};
}

}  // namespace engine
}  // namespace outboard
