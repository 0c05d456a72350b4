// SPDX-License-Identifier: Apache-2.0
/// A file or a folder that gets its name when it is whole.
#pragma once

#include <cstdint>
#include <string>

#include "ckpt/files.hpp"

namespace outboard::ckpt {

class ExportTarget {
 public:
  /// @throws Error{io_failure} if `path`, or what an export there that was killed has left, is
  /// there; Error{no_space} if less than `bytes` are free.
  ExportTarget(FileSystem& files, std::string path, std::uint64_t bytes);
  /// Removes what was not published.
  ~ExportTarget();
  ExportTarget(const ExportTarget&) = delete;
  ExportTarget& operator=(const ExportTarget&) = delete;

  /// Where to write: a path to make a file or a folder of.
  [[nodiscard]] const std::string& place() const noexcept { return place_; }
  void make_folder();
  /// What is there is synced, then has its name, durably. @throws Error{io_failure}
  void publish();

 private:
  FileSystem& files_;
  std::string path_, place_;
  bool folder_ = false, published_ = false;
};

}  // namespace outboard::ckpt
