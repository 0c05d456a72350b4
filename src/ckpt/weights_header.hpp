// SPDX-License-Identifier: Apache-2.0
/// The header of a safetensors file of a model's weights, as others write it: tensors of F32, F16
/// or BF16 and of any shape. (Checkpoints' own files: tensor_file.hpp.)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "outboard/types.hpp"

namespace outboard::ckpt {

struct WeightTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::uint64_t> shape;  ///< empty: a scalar
  std::uint64_t elems = 0;           ///< product of the shape
  std::uint64_t offset = 0;          ///< in bytes from the start of the file

  [[nodiscard]] std::uint64_t bytes() const { return elems * dtype_bytes(dtype); }
};

/// Length and JSON for these tensors, one behind the other. Sets their offsets.
/// @throws Error{unsupported} if it would be longer than readers take.
[[nodiscard]] std::string make_weights_header(std::vector<WeightTensor>& tensors);

/// The whole header; its length comes from header_bytes(). @return the tensors as they lie in the
/// file. @throws Error{bad_checkpoint} naming `file` and the place: for a tensor of another dtype,
/// whose bytes are not its shape's, that lies outside the file, overlaps another or leaves a gap.
[[nodiscard]] std::vector<WeightTensor> parse_weights_header(std::string_view header,
                                                             std::uint64_t file_bytes,
                                                             const std::string& file);

}  // namespace outboard::ckpt
