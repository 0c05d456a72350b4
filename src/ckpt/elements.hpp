// SPDX-License-Identifier: Apache-2.0
/// Elements of f32, f16 or bf16 as they lie in files, to and from FP32, through buffers of a piece.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ckpt/files.hpp"
#include "core/function_ref.hpp"
#include "outboard/types.hpp"

namespace outboard::ckpt {

/// Takes the next elements of a tensor, which it does not keep.
using FloatSink = core::FunctionRef<void(std::span<const float>)>;

/// Exact. `bytes`: as many elements as `out` has.
void decode(std::span<const std::byte> bytes, DType dtype, std::span<float> out);
/// Rounds to nearest even. @return how many finite values became infinite.
std::uint64_t encode(std::span<const float> values, DType dtype, std::vector<std::byte>& out);

/// `elems` elements from byte `offset` of a file on, piece by piece.
void read_elements(const File& file, std::uint64_t offset, std::uint64_t elems, DType dtype,
                   FloatSink sink);

/// A matrix that is not in memory.
struct MatrixShape {
  std::uint64_t rows = 0, cols = 0;
};
/// Gives out the matrix column by column, in bands that fit a few MiB. `read` gets a row, a first
/// column and where the elements from there on go.
void read_transposed(const MatrixShape& shape,
                     core::FunctionRef<void(std::uint64_t, std::uint64_t, std::span<float>)> read,
                     FloatSink sink);

}  // namespace outboard::ckpt
