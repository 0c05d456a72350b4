// SPDX-License-Identifier: Apache-2.0
#include "ckpt/master_reader.hpp"

#include <algorithm>
#include <vector>

#include "ckpt/format.hpp"

namespace outboard::ckpt {

void read_master(const Checkpoint& checkpoint, std::size_t parameter, FloatSink sink) {
  constexpr std::uint64_t kPiece = kPieceBytes / sizeof(float);
  const std::uint64_t elems = checkpoint.manifest().parameters[parameter].elems;
  auto stream = checkpoint.stream(parameter, kMasterStream);
  std::vector<float> piece(std::min(elems, kPiece));
  for (std::uint64_t done = 0; done < elems; done += piece.size()) {
    piece.resize(std::min(elems - done, kPiece));
    stream.read(std::as_writable_bytes(std::span(piece)));
    sink(piece);
  }
  stream.finish();
}

void read_master_transposed(const Checkpoint& checkpoint, std::size_t parameter,
                            const MatrixShape& shape, FloatSink sink) {
  read_master(checkpoint, parameter, [](std::span<const float>) {});
  read_transposed(
      shape,
      [&](std::uint64_t row, std::uint64_t col, std::span<float> out) {
        checkpoint.read_range(parameter, kMasterStream, row * shape.cols + col, out);
      },
      sink);
}

}  // namespace outboard::ckpt
