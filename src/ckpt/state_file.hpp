// SPDX-License-Identifier: Apache-2.0
/// One file of a checkpoint's tensors that is being written, from front to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "ckpt/checksum.hpp"
#include "ckpt/files.hpp"

namespace outboard::ckpt {

class StateFile {
 public:
  StateFile(FileSystem& files, const std::string& path, const std::string& header)
      : file_(File::create(files, path)) {
    const auto bytes = std::as_bytes(std::span(header));
    whole_.add(bytes);
    file_.write(bytes);
  }

  /// More of the tensor that is written now: at most a few MiB, so that what is summed is in the
  /// cache when it is written.
  void add(std::span<const std::byte> bytes) {
    whole_.add(bytes);
    tensor_.add(bytes);
    file_.write(bytes);
  }
  /// @return the checksum of the tensor.
  std::uint64_t end_tensor() { return std::exchange(tensor_, Checksum()).value(); }
  /// Synced and closed. @return the checksum of the file.
  std::uint64_t finish() {
    file_.sync();
    file_.close();
    return whole_.value();
  }

 private:
  File file_;
  Checksum whole_, tensor_;
};

}  // namespace outboard::ckpt
