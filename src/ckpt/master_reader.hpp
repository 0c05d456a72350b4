// SPDX-License-Identifier: Apache-2.0
/// The FP32 masters of a checkpoint, to be written elsewhere.
#pragma once

#include <cstdint>

#include "ckpt/elements.hpp"
#include "ckpt/reader.hpp"

namespace outboard::ckpt {

inline constexpr std::size_t kMasterStream = 0;  ///< optim::stream_names() begins with it

/// All of one, in order, held against its checksum at the end.
/// @throws Error{bad_checkpoint} naming file and tensor.
void read_master(const Checkpoint& checkpoint, std::size_t parameter, FloatSink sink);
/// As a matrix, column by column, having held it against its checksum first.
void read_master_transposed(const Checkpoint& checkpoint, std::size_t parameter,
                            const MatrixShape& shape, FloatSink sink);

}  // namespace outboard::ckpt
