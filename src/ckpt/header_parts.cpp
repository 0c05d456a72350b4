// SPDX-License-Identifier: Apache-2.0
#include "ckpt/header_parts.hpp"

#include <algorithm>
#include <utility>

#include "ckpt/tensor_file.hpp"

namespace outboard::ckpt {

void require_tiling(std::vector<TensorExtent> tensors, std::uint64_t data_offset,
                    std::uint64_t file_bytes, const JsonPlace& place) {
  std::ranges::sort(tensors, {}, [](const TensorExtent& tensor) {
    return std::pair(tensor.offset, tensor.bytes);
  });
  std::uint64_t next = data_offset;
  for (const TensorExtent& tensor : tensors) {
    if (tensor.offset != next) {
      place.refuse("has tensors that overlap or leave a gap at byte " + std::to_string(next));
    }
    next += tensor.bytes;
  }
  if (next == file_bytes) return;
  place.refuse("has tensors up to byte " + std::to_string(next) + " and is " +
               std::to_string(file_bytes) + " bytes long");
}

std::string read_header(const File& file, std::uint64_t file_bytes) {
  std::string header(std::min<std::uint64_t>(8, file_bytes), '\0');
  file.read(std::as_writable_bytes(std::span(header)), 0);
  header.resize(header_bytes(header, file_bytes, file.path()));
  file.read(std::as_writable_bytes(std::span(header)), 0);
  return header;
}

}  // namespace outboard::ckpt
