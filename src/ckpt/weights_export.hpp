// SPDX-License-Identifier: Apache-2.0
/// Writes the FP32 masters of a checkpoint as other programs' files of weights, through buffers of
/// a few MiB. What is written gets its name when it is whole.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ckpt/reader.hpp"

namespace outboard::ckpt {

struct WeightsFormat {
  DType dtype = DType::f32;
  std::uint64_t max_shard_bytes = 0;         ///< safetensors: a tensor begins another file beyond
  std::map<std::string, std::string> names;  ///< safetensors: by the checkpoint's; others are kept
  std::map<std::string, std::vector<std::uint64_t>> shapes;  ///< the same; others are flat
  std::uint64_t heads = 0;  ///< llm.c: of attention; 0: the entry "heads"
};

struct ExportedWeights {
  std::vector<std::string> files;
  std::uint64_t bytes = 0;  ///< of them
  std::uint64_t tensors = 0;
  std::uint64_t overflowed = 0;  ///< finite masters that are infinite in the file
};

/// Into the folder `target`, which is made. Several files have an index beside them, one is
/// `model.safetensors`.
/// @throws Error{io_failure} if it is there already; Error{no_space}; Error{bad_checkpoint} if a
/// master is damaged; Error{invalid_argument} for a name or a shape that does not fit. Nothing is
/// left then.
ExportedWeights export_safetensors(FileSystem& files, const Checkpoint& checkpoint,
                                   const std::string& target, const WeightsFormat& format);
/// The file `target`. @throws the same; Error{unsupported} naming the parameter that is missing, or
/// of another size, where the model is none of examples/gpt.
ExportedWeights export_llmc(FileSystem& files, const Checkpoint& checkpoint,
                            const std::string& target, const WeightsFormat& format);

}  // namespace outboard::ckpt
