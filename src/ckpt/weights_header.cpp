// SPDX-License-Identifier: Apache-2.0
#include "ckpt/weights_header.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ckpt/format.hpp"
#include "ckpt/header_parts.hpp"
#include "ckpt/json.hpp"
#include "ckpt/tensor_file.hpp"
#include "core/round_up.hpp"

namespace outboard::ckpt {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxDimensions = 16;
constexpr std::array<std::pair<const char*, DType>, 3> kNames = {
    {{"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16}}};

DType dtype_named(const JsonRef& json) {
  const std::string text = json.text();
  for (const auto& [name, dtype] : kNames) {
    if (text == name) return dtype;
  }
  json.place().refuse("is '" + text + "' and may be 'F32', 'F16' or 'BF16'");
}

const char* name_of(DType dtype) {
  return std::ranges::find(kNames, dtype, [](const auto& known) { return known.second; })->first;
}

void read_shape(const JsonRef& json, WeightTensor& tensor) {
  if (json.items() > kMaxDimensions) json.place().refuse("has too many dimensions");
  tensor.elems = 1;
  for (std::size_t i = 0; i < json.items(); ++i) {
    const std::uint64_t size = json.item(i).count(kMaxElems);
    if (size != 0 && tensor.elems > kMaxElems / size) json.place().refuse("has too many elements");
    tensor.elems *= size;
    tensor.shape.push_back(size);
  }
}

WeightTensor parse_tensor(const std::string& name, const JsonRef& entry, std::uint64_t data_offset,
                          std::uint64_t file_bytes) {
  WeightTensor tensor;
  tensor.name = name;
  tensor.dtype = dtype_named(entry.at("dtype"));
  read_shape(entry.at("shape"), tensor);
  const JsonRef offsets = entry.at("data_offsets");
  if (offsets.items() != 2) offsets.place().refuse("is not a begin and an end");
  const std::uint64_t end = offsets.item(1).count(file_bytes - data_offset);
  const std::uint64_t begin = offsets.item(0).count(end);
  if (end - begin != tensor.bytes()) {
    offsets.place().refuse("holds " + std::to_string(end - begin) + " bytes and its shape " +
                           std::to_string(tensor.bytes()));
  }
  tensor.offset = data_offset + begin;
  return tensor;
}

}  // namespace

std::string make_weights_header(std::vector<WeightTensor>& tensors) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::uint64_t offset = 0;
  for (WeightTensor& tensor : tensors) {
    tensor.offset = offset;
    offset += tensor.bytes();
    text += "," + Json(tensor.name).dump() + R"(:{"dtype":")" + name_of(tensor.dtype) +
            R"(","shape":)" + Json(tensor.shape).dump() + R"(,"data_offsets":[)" +
            std::to_string(tensor.offset) + "," + std::to_string(offset) + "]}";
  }
  text += "}";
  text.resize(core::round_up(text.size(), kLengthBytes), ' ');
  if (text.size() > kMaxHeaderBytes) {
    throw Error(ErrorCode::unsupported, "a file of " + std::to_string(tensors.size()) +
                                            " tensors would have a header of more than " +
                                            std::to_string(kMaxHeaderBytes) +
                                            " bytes; make the files smaller");
  }
  std::string length(kLengthBytes, '\0');
  const std::uint64_t size = text.size();
  std::memcpy(length.data(), &size, kLengthBytes);
  for (WeightTensor& tensor : tensors) tensor.offset += kLengthBytes + size;
  return length + text;
}

std::vector<WeightTensor> parse_weights_header(std::string_view header, std::uint64_t file_bytes,
                                               const std::string& file) {
  const JsonPlace place{file, ""};
  const std::uint64_t data = header_bytes(header.substr(0, kLengthBytes), file_bytes, file);
  if (data != header.size()) place.refuse("has a header of another length");
  const Json json = parse_json(header.substr(kLengthBytes), file);
  if (!json.is_object()) place.refuse("has a header that is no object");
  std::vector<WeightTensor> tensors;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;
    tensors.push_back(parse_tensor(name, {entry, place.member(name)}, data, file_bytes));
  }
  std::ranges::sort(tensors, {}, [](const WeightTensor& tensor) {
    return std::pair(tensor.offset, tensor.elems);
  });
  std::vector<TensorExtent> extents;
  extents.reserve(tensors.size());
  for (const WeightTensor& tensor : tensors) extents.push_back({tensor.offset, tensor.bytes()});
  require_tiling(std::move(extents), data, file_bytes, place);
  return tensors;
}

}  // namespace outboard::ckpt
