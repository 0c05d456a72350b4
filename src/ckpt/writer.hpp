// SPDX-License-Identifier: Apache-2.0
/// Writes a checkpoint: tensors straight from where they lie, then the manifest, then the name that
/// makes it one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ckpt/file_system.hpp"
#include "ckpt/manifest.hpp"
#include "core/function_ref.hpp"

namespace outboard::ckpt {

/// Gives out the elements of the state.
class StateSource {
 public:
  using Sink = core::FunctionRef<void(std::span<const std::byte>)>;
  virtual ~StateSource() = default;
  /// Hands all of one stream to `sink`, in order and in pieces of any size, which the sink does not
  /// keep. Called from several threads at a time.
  virtual void read(std::size_t parameter, std::size_t stream, Sink sink) = 0;
};

struct SaveRequest {
  /// Files and checksums are filled in by the writer; of a stream only its name is read.
  Manifest manifest;
  std::uint32_t keep_last = 1;  ///< checkpoints that stay in the folder; 0: all
  /// A tensor begins another file where this is exceeded, unless there would be too many files.
  std::uint64_t file_bytes = 0;
  std::uint32_t threads = 1;  ///< at most; each writes one file at a time
};

struct SavedCheckpoint {
  std::string folder;
  std::uint64_t bytes = 0;  ///< of all its files
  std::string note;         ///< "" or what went wrong once it was there
};

/// Bytes of all files of this checkpoint, exactly.
[[nodiscard]] std::uint64_t planned_bytes(const SaveRequest& request);
/// @throws Error{no_space} saying what is needed and what is free at `root`, or at what is there of
/// the path; nothing is written.
void require_space(FileSystem& files, const std::string& root, const SaveRequest& request);

/// Saves into the folder `root`, which is made if its parent is there. Until it returns the newest
/// checkpoint there is the one before, or this one, complete. Blocks.
/// @throws Error{no_space} before anything is written, or while it is; Error{io_failure};
/// Error{invalid_argument} for a name that is not UTF-8; what the source throws: of several the
/// first in time. The newest checkpoint is the one before then, and rests of the attempt go with
/// the next save if the file system does not let them go now. Only if the folder can neither be
/// synced nor the new name be taken back is it there, and the text says so.
SavedCheckpoint save(FileSystem& files, const std::string& root, SaveRequest request,
                     StateSource& source);

}  // namespace outboard::ckpt
