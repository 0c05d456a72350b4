// SPDX-License-Identifier: Apache-2.0
/// A save whose state is handed over bit by bit by whoever has the time: nothing here has a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/folder.hpp"
#include "ckpt/save_plan.hpp"
#include "ckpt/state_file.hpp"
#include "ckpt/writer.hpp"

namespace outboard::ckpt {

class PiecewiseSave {
 public:
  /// All of a save() before its first byte of state: the folder is locked, its room is there. What
  /// was not finished is removed by the destructor. `request.threads` is not read.
  /// @throws as save(); nothing was written then.
  PiecewiseSave(FileSystem& files, const std::string& root, SaveRequest request);
  PiecewiseSave(const PiecewiseSave&) = delete;
  PiecewiseSave& operator=(const PiecewiseSave&) = delete;

  /// The next bytes of state: parameter by parameter, each one's streams in turn, from the first
  /// element to the last. Never across the end of a stream. Blocks while they are written; with the
  /// last of a file until that is synced. @throws Error{no_space}, Error{io_failure}.
  void write(std::span<const std::byte> bytes);
  /// After all of them: the manifest, and the name. @throws as save().
  SavedCheckpoint finish(std::uint64_t digest);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }  ///< of all files

 private:
  void end_streams();
  void begin_file();

  FileSystem& files_;
  SaveRequest request_;
  std::vector<PlannedFile> planned_;
  std::vector<std::string> headers_;
  std::uint64_t bytes_ = 0;
  std::optional<Publication> publication_;
  std::string folder_;  // that is written into
  std::optional<StateFile> file_;
  std::size_t index_ = 0;   // of the file
  std::size_t tensor_ = 0;  // of the file's
  std::uint64_t left_ = 0;  // bytes of the tensor
};

}  // namespace outboard::ckpt
