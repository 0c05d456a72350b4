// SPDX-License-Identifier: Apache-2.0
/// One file of weights that is being written, from front to back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ckpt/elements.hpp"
#include "ckpt/files.hpp"

namespace outboard::ckpt {

class ExportFile {
 public:
  ExportFile(FileSystem& files, const std::string& path, DType dtype)
      : file_(File::create(files, path)), dtype_(dtype) {}

  void raw(std::span<const std::byte> bytes) {
    file_.write(bytes);
    bytes_ += bytes.size();
  }
  void values(std::span<const float> values) {
    overflowed_ += encode(values, dtype_, buffer_);
    raw(buffer_);
  }
  /// Synced and closed.
  void finish() {
    file_.sync();
    file_.close();
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t overflowed() const noexcept { return overflowed_; }

 private:
  File file_;
  DType dtype_;
  std::vector<std::byte> buffer_;
  std::uint64_t bytes_ = 0, overflowed_ = 0;
};

}  // namespace outboard::ckpt
