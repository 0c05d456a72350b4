// SPDX-License-Identifier: Apache-2.0
/// What a save will write, known before its first byte: files, headers and sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/tensor_file.hpp"
#include "ckpt/writer.hpp"

namespace outboard::ckpt {

/// One file that is to be written.
struct PlannedFile {
  struct Tensor {
    std::size_t parameter = 0, stream = 0;
  };
  std::vector<Tensor> tensors;
  std::vector<TensorSpec> specs;
  std::uint64_t data_bytes = 0;
  std::uint64_t header_bytes = 0;  ///< at most
};

/// Parameter by parameter, all streams of one side by side, in files longer than
/// `request.file_bytes` where they would be more than kMaxSavedFiles. Sets each stream's file.
[[nodiscard]] std::vector<PlannedFile> plan_files(SaveRequest& request);
/// With headers made and sizes known. Checksums are 0 still, which is as long.
/// @return the headers. @throws Error{invalid_argument} for a name that is not UTF-8.
[[nodiscard]] std::vector<std::string> describe_files(const std::vector<PlannedFile>& planned,
                                                      Manifest& manifest);
/// @throws Error{no_space} saying what is needed and what is free.
void require_space(FileSystem& files, const std::string& root, const Manifest& manifest,
                   std::uint64_t manifest_bytes);
/// The manifest's text. @throws Error{unsupported} if it is longer than is read.
[[nodiscard]] std::string checked_manifest(const Manifest& manifest);
/// Written and synced.
void write_manifest_file(FileSystem& files, const std::string& folder, const std::string& text);
[[nodiscard]] std::uint64_t total_bytes(const Manifest& manifest, std::uint64_t manifest_bytes);

}  // namespace outboard::ckpt
