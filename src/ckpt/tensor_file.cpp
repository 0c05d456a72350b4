// SPDX-License-Identifier: Apache-2.0
#include "ckpt/tensor_file.hpp"

#include <bit>
#include <cstring>
#include <utility>

#include "ckpt/format.hpp"
#include "ckpt/header_parts.hpp"
#include "ckpt/json.hpp"
#include "core/round_up.hpp"

namespace outboard::ckpt {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr const char* kMetadata = "__metadata__";

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and state is written as it lies in memory");

TensorPlace parse_tensor(const JsonRef& entry, std::uint64_t data_offset,
                         std::uint64_t file_bytes) {
  if (entry.at("dtype").text() != "F32") entry.at("dtype").place().refuse("is not F32");
  const JsonRef shape = entry.at("shape");
  if (shape.items() != 1) shape.place().refuse("has not one dimension");
  const JsonRef offsets = entry.at("data_offsets");
  if (offsets.items() != 2) offsets.place().refuse("is not a begin and an end");
  const std::uint64_t elems = shape.item(0).count(kMaxElems);
  const std::uint64_t end = offsets.item(1).count(file_bytes - data_offset);
  const std::uint64_t begin = offsets.item(0).count(end);
  if (end - begin != elems * sizeof(float)) {
    offsets.place().refuse("holds " + std::to_string(end - begin) + " bytes and the shape " +
                           std::to_string(elems) + " elements of 4");
  }
  return {data_offset + begin, elems};
}

}  // namespace

std::string make_header(const std::vector<TensorSpec>& tensors) {
  std::string text = R"({"__metadata__":{"format":"outboard-checkpoint"})";
  std::uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    const std::uint64_t end = offset + tensor.elems * sizeof(float);
    text += "," + Json(tensor.name).dump() + R"(:{"dtype":"F32","shape":[)" +
            std::to_string(tensor.elems) + R"(],"data_offsets":[)" + std::to_string(offset) + "," +
            std::to_string(end) + "]}";
    offset = end;
  }
  text += "}";
  text.resize(core::round_up(text.size() + kLengthBytes, kDataAlign) - kLengthBytes, ' ');
  if (text.size() > kMaxHeaderBytes) {
    throw Error(ErrorCode::unsupported, "a checkpoint file of " + std::to_string(tensors.size()) +
                                            " tensors would have a header of more than " +
                                            std::to_string(kMaxHeaderBytes) +
                                            " bytes; lower SaveOptions::file_bytes");
  }
  std::string length(kLengthBytes, '\0');
  const std::uint64_t size = text.size();
  std::memcpy(length.data(), &size, kLengthBytes);
  return length + text;
}

std::uint64_t header_bytes_of(const TensorSpec& tensor) {
  // A name's character takes six at most ("\u0001"), a number twenty digits.
  return tensor.name.size() * 6 + 120;
}

std::uint64_t header_bytes(std::string_view first8, std::uint64_t file_bytes,
                           const std::string& file) {
  const JsonPlace place{file, ""};
  std::uint64_t size = 0;
  if (first8.size() != kLengthBytes) place.refuse("is too short for a header");
  std::memcpy(&size, first8.data(), kLengthBytes);
  if (size > kMaxHeaderBytes || size + kLengthBytes > file_bytes) {
    place.refuse("says that its header has " + std::to_string(size) + " bytes and is " +
                 std::to_string(file_bytes) + " bytes long");
  }
  return size + kLengthBytes;
}

TensorHeader parse_header(std::string_view text, std::uint64_t file_bytes,
                          const std::string& file) {
  const JsonPlace place{file, ""};
  TensorHeader header;
  header.data_offset = header_bytes(text.substr(0, kLengthBytes), file_bytes, file);
  if (header.data_offset != text.size()) place.refuse("has a header of another length");
  const Json json = parse_json(text.substr(kLengthBytes), file);
  if (!json.is_object()) place.refuse("has a header that is no object");
  for (const auto& [name, entry] : json.items()) {
    if (name == kMetadata) continue;
    const JsonRef ref(entry, place.member(name));
    header.tensors.emplace(name, parse_tensor(ref, header.data_offset, file_bytes));
  }
  std::vector<TensorExtent> extents;
  for (const auto& [name, tensor] : header.tensors) {
    extents.push_back({tensor.offset, tensor.elems * sizeof(float)});
  }
  require_tiling(std::move(extents), header.data_offset, file_bytes, place);
  return header;
}

}  // namespace outboard::ckpt
