// SPDX-License-Identifier: Apache-2.0
/// The header of a safetensors file, as this format uses it: FP32 tensors of one dimension, one
/// after the other from a 4,096-byte border on to the end of the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace outboard::ckpt {

/// A tensor of a file that is to be written.
struct TensorSpec {
  std::string name;
  std::uint64_t elems = 0;
};

/// Length, JSON and padding: everything before the data, which begins on a multiple of kDataAlign.
/// @throws Error{unsupported} if it would be longer than readers take.
[[nodiscard]] std::string make_header(const std::vector<TensorSpec>& tensors);
/// At least as many bytes as these tensors' entries take in a header.
[[nodiscard]] std::uint64_t header_bytes_of(const TensorSpec& tensor);

/// Where a tensor of a file lies, in bytes from the start of the file.
struct TensorPlace {
  std::uint64_t offset = 0;
  std::uint64_t elems = 0;
};

struct TensorHeader {
  std::uint64_t data_offset = 0;
  std::map<std::string, TensorPlace, std::less<>> tensors;
};

/// The length of the whole header, from its first 8 bytes. `file_bytes`: size of the file.
/// @throws Error{bad_checkpoint} naming `file`.
[[nodiscard]] std::uint64_t header_bytes(std::string_view first8, std::uint64_t file_bytes,
                                         const std::string& file);
/// The whole header. @throws Error{bad_checkpoint} naming `file`: for a tensor that is not FP32 of
/// one dimension, whose bytes are not its elements', that lies outside the file, overlaps another
/// or leaves a gap.
[[nodiscard]] TensorHeader parse_header(std::string_view header, std::uint64_t file_bytes,
                                        const std::string& file);

}  // namespace outboard::ckpt
