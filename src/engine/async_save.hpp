// SPDX-License-Identifier: Apache-2.0
/// The engine's save that runs beside its steps: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/file_system.hpp"
#include "ckpt/piecewise_save.hpp"
#include "device/backend.hpp"
#include "engine/background.hpp"
#include "outboard/checkpoint.hpp"
#include "pipeline/step.hpp"

namespace outboard::engine {

class AsyncSave {
 public:
  explicit AsyncSave(std::shared_ptr<device::Backend> device);
  /// None runs.
  ~AsyncSave() = default;
  AsyncSave(const AsyncSave&) = delete;
  AsyncSave& operator=(const AsyncSave&) = delete;

  struct What {
    const std::string& folder;
    ckpt::SaveRequest request;
    std::size_t snapshot_bytes = 0;
  };
  /// None runs. `pipeline` must outlive the save. Begins with the state as it is.
  SaveTicket start(ckpt::FileSystem& files, pipeline::Pipeline& pipeline, What what);
  /// Blocks until none runs. Throws nothing; what failed is still to be told.
  void finish() noexcept;
  /// Throws the failure of a save whose ticket is gone and told nobody. Once.
  void throw_untold();
  /// Once for each that has ended: what to log of it. Nothing: none has.
  struct News {
    SaveReport report;
    std::optional<Error> failure;
  };
  [[nodiscard]] std::optional<News> news();

 private:
  void keep_untold();
  Background::Piece piece();
  Background::Piece go_on();
  void end(std::optional<SaveReport> report, const Error* failure) noexcept;

  std::shared_ptr<device::Backend> device_;
  device::Backend& backend_;
  Background background_;
  std::shared_ptr<SaveTicket::State> state_;                // of the last one
  std::vector<std::shared_ptr<SaveTicket::State>> untold_;  // failed, and nobody knows of it yet
  bool news_told_ = true;
  pipeline::Pipeline* pipeline_ = nullptr;
  std::optional<ckpt::PiecewiseSave> save_;
  std::vector<std::byte> buffer_;
};

}  // namespace outboard::engine
