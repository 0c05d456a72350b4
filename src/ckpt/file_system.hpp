// SPDX-License-Identifier: Apache-2.0
/// What a checkpoint asks of a file system, call by call. Tests put another in its place, which
/// fails, writes less than it is given, or loses what was not synced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace outboard::ckpt {

/// What a call gave: `error` is an errno, and 0 if it succeeded.
struct CallResult {
  std::int64_t value = 0;
  int error = 0;
};

/// As the system calls of these names behave: write() and read() may do less than asked, every one
/// may fail with EINTR. Thread-safe for different handles.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// A handle of a new file to write to; refused if there is one of the name.
  virtual CallResult create(const std::string& path) = 0;
  /// A handle of a regular file to read, or of a folder to sync and lock.
  virtual CallResult open(const std::string& path) = 0;
  virtual CallResult write(int handle, std::span<const std::byte> bytes) = 0;
  virtual CallResult read(int handle, std::span<std::byte> bytes, std::uint64_t offset) = 0;
  virtual CallResult size(int handle) = 0;
  /// A file's bytes, or a folder's names, are on the medium when it returns.
  virtual CallResult sync(int handle) = 0;
  /// Exclusive, for as long as the handle is open. Does not wait: EWOULDBLOCK.
  virtual CallResult lock(int handle) = 0;
  virtual CallResult close(int handle) = 0;

  virtual CallResult make_folder(const std::string& path) = 0;
  /// Atomic. `to` is not there before.
  virtual CallResult rename(const std::string& from, const std::string& to) = 0;
  virtual CallResult remove_file(const std::string& path) = 0;
  virtual CallResult remove_folder(const std::string& path) = 0;  ///< an empty one
  /// Names in a folder, in any order, without "." and "..".
  virtual CallResult list(const std::string& path, std::vector<std::string>& names) = 0;
  /// What may be written to the file system of `path`.
  virtual CallResult free_bytes(const std::string& path) = 0;
  /// Of one file, as this process is limited.
  virtual CallResult largest_file_bytes() = 0;
};

/// The machine's own. Lives as long as the process; thread-safe.
[[nodiscard]] FileSystem& posix_file_system();

}  // namespace outboard::ckpt
