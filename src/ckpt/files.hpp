// SPDX-License-Identifier: Apache-2.0
/// Files and folders through a FileSystem: all of a write or none, interrupted calls made again,
/// failures thrown as Error{io_failure} (a full disk: Error{no_space}) that names the path, the
/// errno and, of a write, its place and its bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/checksum.hpp"
#include "ckpt/file_system.hpp"

namespace outboard::ckpt {

/// An open file or folder. Move-only; closed by the destructor, which ignores a failure.
class File {
 public:
  static File create(FileSystem& files, const std::string& path);
  static File open(FileSystem& files, const std::string& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;

  void write(std::span<const std::byte> bytes);
  /// Exactly these bytes. @throws Error{bad_checkpoint} if the file ends before them.
  void read(std::span<std::byte> bytes, std::uint64_t offset) const;
  [[nodiscard]] std::uint64_t size() const;
  void sync();
  /// @return false if another process, or another handle of this one, holds it; true as well where
  /// the file system has no locks.
  [[nodiscard]] bool try_lock();
  /// For what was written: some file systems report only here that it is lost.
  void close();
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  File(FileSystem& files, std::string path, int handle)
      : files_(&files), path_(std::move(path)), handle_(handle) {}
  FileSystem* files_;
  std::string path_;
  int handle_ = -1;
  std::uint64_t written_ = 0;
};

[[nodiscard]] std::string join(std::string_view folder, std::string_view name);
/// @return false if it is there already.
bool make_folder(FileSystem& files, const std::string& path);
void rename(FileSystem& files, const std::string& from, const std::string& to);
/// Of a folder, sorted. @return nothing for a folder that is not there, if `may_lack`.
[[nodiscard]] std::vector<std::string> list(FileSystem& files, const std::string& path,
                                            bool may_lack = false);
void sync_folder(FileSystem& files, const std::string& path);
/// A folder and all in it, or a file or a link; what is gone already is no failure.
void remove_tree(FileSystem& files, const std::string& path);
[[nodiscard]] std::uint64_t free_bytes(FileSystem& files, const std::string& path);
/// A whole file of at most `most` bytes. @throws Error{bad_checkpoint} for a larger one.
[[nodiscard]] std::string read_text(FileSystem& files, const std::string& path, std::uint64_t most);

}  // namespace outboard::ckpt
