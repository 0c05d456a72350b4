// SPDX-License-Identifier: Apache-2.0
/// Which folders a folder of checkpoints has, and how one more gets into it. A checkpoint is
/// complete from the one rename on that gives it its name; the newest is the one with the largest
/// number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/files.hpp"
#include "outboard/error.hpp"

namespace outboard::ckpt {

/// "save-00000012".
[[nodiscard]] std::string saved_name(std::uint64_t number);
[[nodiscard]] std::optional<std::uint64_t> saved_number(std::string_view name);
/// The folder that a path is in, whatever slashes it ends with; "." for what has none.
[[nodiscard]] std::string parent_of(std::string path);

/// Numbers of the checkpoints in a folder, ascending; none if there is no such folder.
[[nodiscard]] std::vector<std::uint64_t> saved_numbers(FileSystem& files, const std::string& root);

/// The folder of the checkpoint that `path` means: itself if it holds a manifest, else the newest
/// in it. @throws Error{io_failure} saying what is there if there is none.
[[nodiscard]] std::string find_checkpoint(FileSystem& files, const std::string& path);

/// A place for one more checkpoint: makes the folder if there is none, keeps other savers out for
/// as long as it lives, and removes what killed ones have left. What was not published is removed
/// by the destructor.
class Publication {
 public:
  /// @throws Error{io_failure} if another process is saving there.
  Publication(FileSystem& files, const std::string& root);
  ~Publication();
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;

  /// Makes the folder to write into, and returns it.
  std::string begin();
  /// Makes what is in that folder the newest checkpoint, atomically. The files in it are synced.
  /// @return its folder. @throws Error{io_failure}: there is no new checkpoint then; if even its
  /// name cannot be taken back, the text says so.
  std::string publish();
  /// Removes all but the newest `count`; 0: none. @return "" or what could not be removed and why,
  /// of what killed savers have left too.
  std::string keep_last(std::uint32_t count) noexcept;

 private:
  void sync_parent(bool made);
  [[noreturn]] void take_back(const std::string& folder, const Error& failure);
  void remove_leftovers();

  FileSystem& files_;
  std::string root_;
  std::optional<File> lock_;
  std::uint64_t number_ = 0;
  std::string saving_;     // "": none, or published
  std::string left_over_;  // what could not be removed, and why
};

}  // namespace outboard::ckpt
