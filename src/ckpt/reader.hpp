// SPDX-License-Identifier: Apache-2.0
/// Reads checkpoints, trusting none of their bytes: every length and place is checked before it is
/// used, and what is read is held against its checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "ckpt/checksum.hpp"
#include "ckpt/files.hpp"
#include "ckpt/manifest.hpp"

namespace outboard::ckpt {

/// A checkpoint whose manifest and headers have been read and fit each other. Movable. Holds its
/// files open: it can be read to its end while a saver removes it.
class Checkpoint {
 public:
  /// `path`: a checkpoint's folder, or the one that checkpoints are saved into: the newest.
  /// @throws Error{io_failure}, Error{bad_checkpoint} naming the file, Error{unsupported} for a
  /// later version of the format.
  static Checkpoint open(FileSystem& files, const std::string& path);

  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }

  /// One stream of a parameter, read from its first element to its last. Borrows the checkpoint.
  class Stream {
   public:
    /// The next elements, into memory of any place.
    void read(std::span<std::byte> out);
    /// After the last. @throws Error{bad_checkpoint} naming the file and the tensor if the bytes
    /// were not those that were saved.
    void finish() const;

   private:
    friend class Checkpoint;
    Stream(const Checkpoint& checkpoint, std::size_t parameter, std::size_t stream);
    const Checkpoint& checkpoint_;
    std::size_t parameter_, stream_;
    const File& file_;
    std::uint64_t offset_;
    Checksum checksum_;
  };
  [[nodiscard]] Stream stream(std::size_t parameter, std::size_t stream) const {
    return {*this, parameter, stream};
  }
  /// Some elements of a stream, which no checksum covers by themselves.
  /// @throws Error{invalid_argument} for elements beyond the last.
  void read_range(std::size_t parameter, std::size_t stream, std::uint64_t first_element,
                  std::span<float> out) const;

  /// Reads every byte of a file. @throws Error{bad_checkpoint} if its checksum differs.
  void verify_file(std::size_t file) const;
  void verify() const;  ///< all files

 private:
  Checkpoint(FileSystem& files, std::string folder, Manifest manifest)
      : files_(&files), folder_(std::move(folder)), manifest_(std::move(manifest)) {}
  [[nodiscard]] std::string path_of(std::size_t file) const {
    return join(folder_, manifest_.files[file].name);
  }
  static Checkpoint open_folder(FileSystem& files, std::string folder);
  void read_headers();

  FileSystem* files_;
  std::string folder_;
  Manifest manifest_;
  std::deque<File> opened_;                          // by file
  std::vector<std::vector<std::uint64_t>> offsets_;  // bytes in its file, by parameter and stream
};

}  // namespace outboard::ckpt
