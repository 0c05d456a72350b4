// SPDX-License-Identifier: Apache-2.0
/// A file or a folder that gets its name when it is whole.
#pragma once

#include <cstdint>
#include <string>

#include "ckpt/files.hpp"
#include "outboard/error.hpp"

namespace outboard::ckpt {

class ExportTarget {
 public:
  /// @throws Error{io_failure} if `path`, or what an export there that was killed has left, is
  /// there, or cannot be looked at; Error{no_space} if less than `bytes` are free.
  ExportTarget(FileSystem& files, std::string path, std::uint64_t bytes);
  /// Removes what was not published.
  ~ExportTarget();
  ExportTarget(const ExportTarget&) = delete;
  ExportTarget& operator=(const ExportTarget&) = delete;

  /// Where to write: a path to make a file or a folder of.
  [[nodiscard]] const std::string& place() const noexcept { return place_; }
  void make_folder();
  /// The file was made: nobody else's is there.
  void made_file() noexcept { made_ = true; }
  /// What is there is synced, then has its name, durably. @throws Error{io_failure}: it has not
  /// then, unless the text says so.
  void publish();

 private:
  [[noreturn]] void take_back(const Error& failure);

  FileSystem& files_;
  std::string path_, place_;
  bool folder_ = false;
  bool made_ = false;  // what is at place_, by this export
};

}  // namespace outboard::ckpt
