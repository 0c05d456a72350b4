// SPDX-License-Identifier: Apache-2.0
#include "ckpt/elements.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ckpt/format.hpp"
#include "outboard/half.hpp"

namespace outboard::ckpt {
namespace {

constexpr std::uint64_t kPieceElems = kPieceBytes / sizeof(float);
constexpr std::uint64_t kBandElems = 8 * kPieceElems;

std::uint16_t half_of(float value, DType dtype) {
  return dtype == DType::f16 ? half_from_float(value) : bf16_from_float(value);
}

float float_of(std::uint16_t bits, DType dtype) {
  return dtype == DType::f16 ? half_to_float(bits) : bf16_to_float(bits);
}

}  // namespace

void decode(std::span<const std::byte> bytes, DType dtype, std::span<float> out) {
  if (dtype == DType::f32) {
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
    out[i] = float_of(bits, dtype);
  }
}

std::uint64_t encode(std::span<const float> values, DType dtype, std::vector<std::byte>& out) {
  out.resize(values.size() * dtype_bytes(dtype));
  if (dtype == DType::f32) {
    if (!values.empty()) std::memcpy(out.data(), values.data(), values.size_bytes());
    return 0;
  }
  std::uint64_t overflowed = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = half_of(values[i], dtype);
    std::memcpy(out.data() + i * sizeof(bits), &bits, sizeof(bits));
    overflowed += std::isfinite(values[i]) && !std::isfinite(float_of(bits, dtype)) ? 1 : 0;
  }
  return overflowed;
}

void read_elements(const File& file, std::uint64_t offset, std::uint64_t elems, DType dtype,
                   FloatSink sink) {
  const std::size_t width = dtype_bytes(dtype);
  std::vector<std::byte> bytes(std::min(elems, kPieceElems) * width);
  std::vector<float> values(bytes.size() / width);
  for (std::uint64_t done = 0; done < elems; done += values.size()) {
    values.resize(std::min<std::uint64_t>(elems - done, kPieceElems));
    const auto piece = std::span(bytes).first(values.size() * width);
    file.read(piece, offset + done * width);
    decode(piece, dtype, values);
    sink(values);
  }
}

void read_transposed(const MatrixShape& shape,
                     core::FunctionRef<void(std::uint64_t, std::uint64_t, std::span<float>)> read,
                     FloatSink sink) {
  if (shape.rows == 0) return;
  const std::uint64_t most = std::max<std::uint64_t>(1, kBandElems / shape.rows);
  std::vector<float> line(std::min(most, shape.cols));
  std::vector<float> band(line.size() * shape.rows);
  for (std::uint64_t first = 0; first < shape.cols; first += line.size()) {
    line.resize(std::min<std::uint64_t>(line.size(), shape.cols - first));
    for (std::uint64_t row = 0; row < shape.rows; ++row) {
      read(row, first, line);
      for (std::size_t col = 0; col < line.size(); ++col) band[col * shape.rows + row] = line[col];
    }
    sink(std::span(band).first(line.size() * shape.rows));
  }
}

}  // namespace outboard::ckpt
