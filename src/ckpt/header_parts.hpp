// SPDX-License-Identifier: Apache-2.0
/// What all headers of safetensors files have in common, whoever wrote them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/files.hpp"
#include "ckpt/json.hpp"

namespace outboard::ckpt {

/// A tensor's bytes in its file.
struct TensorExtent {
  std::uint64_t offset = 0, bytes = 0;
};
/// Every byte from `data_offset` to the end of the file belongs to one tensor.
/// @throws Error{bad_checkpoint} naming `place` and the first byte that does not.
void require_tiling(std::vector<TensorExtent> tensors, std::uint64_t data_offset,
                    std::uint64_t file_bytes, const JsonPlace& place);
/// Length and JSON of a file of `file_bytes`. @throws Error{bad_checkpoint} naming it.
[[nodiscard]] std::string read_header(const File& file, std::uint64_t file_bytes);

}  // namespace outboard::ckpt
