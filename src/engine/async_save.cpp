// SPDX-License-Identifier: Apache-2.0
#include "engine/async_save.hpp"

#include <algorithm>
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
  /// Until it has ended: whose waiter to wait with, and what to do where nothing else will happen.
  std::shared_ptr<device::Backend> device;
  std::function<void()> look_around;

  void wait() {
    std::unique_lock lock(mutex);
    if (ended) return;
    const auto kept = device;  // the engine and all other handles may go meanwhile
    kept->waiter().wait(
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

SaveTicket::State& SaveTicket::state() const {
  if (state_) return *state_;
  throw Error(ErrorCode::invalid_argument,
              "SaveTicket: it is empty; another one was made from it, use that");
}

bool SaveTicket::done() const {
  const std::lock_guard lock(state().mutex);
  return state_->ended;
}

SaveTicket::Progress SaveTicket::progress() const {
  return {state().written.load(), state_->bytes};
}

SaveReport SaveTicket::wait() {
  state().wait();
  const std::lock_guard lock(state_->mutex);
  state_->told = true;
  if (state_->failure) throw Error(*state_->failure);
  return state_->report;
}

namespace engine {

AsyncSave::AsyncSave(std::shared_ptr<device::Backend> device)
    : device_(std::move(device)), backend_(*device_), background_(backend_.virtual_loop()) {}

SaveTicket AsyncSave::start(ckpt::FileSystem& files, pipeline::Pipeline& pipeline, What what) {
  save_.emplace(files, what.folder, std::move(what.request));
  auto state = std::make_shared<SaveTicket::State>();
  state->bytes = save_->bytes();
  state->device = device_;
  state->look_around = [this] {
    if (pipeline_->broken()) background_.wake();
  };
  keep_untold();
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
    state_->device.reset();
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

/// Before another save takes the place of one that has failed and told nobody yet.
void AsyncSave::keep_untold() {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  if (!state_->failure || state_->told) return;
  if (std::ranges::find(untold_, state_) == untold_.end()) untold_.push_back(state_);
}

void AsyncSave::throw_untold() {
  keep_untold();
  const auto to_tell = [](const std::shared_ptr<SaveTicket::State>& state) {
    const std::lock_guard lock(state->mutex);
    return !state->told;
  };
  std::erase_if(untold_, [&](const auto& state) { return !to_tell(state); });
  // Held here, and the last one by `state_`: whose ticket is gone.
  const auto found = std::ranges::find_if(
      untold_, [&](const auto& state) { return state.use_count() == (state == state_ ? 2 : 1); });
  if (found == untold_.end()) return;
  const std::shared_ptr<SaveTicket::State> state = *found;
  untold_.erase(found);
  const std::lock_guard lock(state->mutex);
  state->told = true;
  throw Error(*state->failure);
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
