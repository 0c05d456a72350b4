// SPDX-License-Identifier: Apache-2.0
/// A model's weights between checkpoints and the files of other programs. Needs no engine and no
/// device; memory of a few MiB, whatever the size of the model.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "outboard/checkpoint.hpp"
#include "outboard/config.hpp"
#include "outboard/export.hpp"
#include "outboard/types.hpp"

namespace outboard {

enum class WeightsFile : std::uint8_t {
  /// A folder as Hugging Face's libraries write it: `model.safetensors`, or several files
  /// `model-00001-of-00002.safetensors` and `model.safetensors.index.json`.
  safetensors,
  /// A `.bin` of GPT-2 weights as llm.c reads and writes it, version 3 (f32) or 5 (bf16): for the
  /// model of examples/gpt, whose names and layout its tensors have in a checkpoint.
  llmc,
};

struct OUTBOARD_API ExportOptions {
  WeightsFile file = WeightsFile::safetensors;
  /// Of the tensors: the FP32 masters, rounded to nearest even. llmc: f32 or bf16.
  DType dtype = DType::f32;
  // safetensors:
  std::uint64_t max_shard_bytes = 5'000'000'000;  ///< a tensor that goes beyond begins a file
  std::map<std::string, std::string> names{};     ///< the file's by the checkpoint's; others stay
  std::map<std::string, std::vector<std::uint64_t>> shapes{};  ///< by the checkpoint's names;
                                                               ///< others have one dimension
  // llmc:
  std::uint32_t heads = 0;  ///< of attention; 0: what the checkpoint's entry "heads" says
};

struct OUTBOARD_API ExportReport {
  std::string checkpoint;          ///< the folder that was read
  std::vector<std::string> files;  ///< names in the folder, or the file
  std::uint64_t bytes = 0;         ///< of them
  std::uint64_t tensors = 0;
  std::uint64_t overflowed =
      0;  ///< finite masters that are infinite in the file: too large for f16
};

/// Writes the masters of the checkpoint that `checkpoint` means, as inspect_checkpoint() finds it,
/// to `target`, a new file or folder, which has its name once it is whole and synced. Each master
/// is held against its checksum. Tied weights are written once, under their first name.
/// @throws Error{io_failure} if `target` is there already; Error{no_space}; Error{bad_checkpoint};
/// Error{invalid_argument} for a name or a shape that does not fit, or an option of the other
/// format; Error{unsupported} if a file of llm.c cannot hold the model. Nothing is left then.
OUTBOARD_API ExportReport export_weights(const std::string& checkpoint, const std::string& target,
                                         const ExportOptions& options = {});

struct OUTBOARD_API ImportOptions {
  WeightsFile file = WeightsFile::safetensors;
  /// Of the device's weights in the checkpoint, which a strict load() compares; by default the
  /// file's own. The masters have every bit of the file.
  std::optional<DType> dtype{};
  std::map<std::string, std::string> names{};  ///< the checkpoint's by the file's; others stay
  LossScaling loss_scaling{};                  ///< of the engine that is to load it
};

/// Makes a checkpoint in `folder`, as Engine::save() would, of the weights in `source` (one file,
/// or a folder with an index or with one file of safetensors): they are the masters, moments and
/// step counts are zero, and the rule is AdamW, whose hyper-parameters an engine that
/// loads it keeps as it has them. Shapes are not kept. The newest in `folder` from
/// then on. A checkpoint of another rule's engine: load it with LoadOptions::strict = false, which
/// takes the masters.
/// @throws Error{bad_checkpoint} naming the file and what is wrong in it, a NaN or Inf too;
/// Error{unsupported} for another version; Error{invalid_argument} for two tensors of one name, or
/// names of tensors that are not there; Error{io_failure}, Error{no_space} as save() does.
OUTBOARD_API SaveReport import_weights(const std::string& source, const std::string& folder,
                                       const ImportOptions& options = {});

}  // namespace outboard
