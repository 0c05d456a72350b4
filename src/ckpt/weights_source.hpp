// SPDX-License-Identifier: Apache-2.0
/// A model's weights in files of other programs. None of their bytes is trusted: every length and
/// place is checked before it is used, and memory is asked for a piece at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/elements.hpp"
#include "ckpt/files.hpp"
#include "outboard/types.hpp"

namespace outboard::ckpt {

class WeightsSource {
 public:
  struct Tensor {
    std::string name;
    DType dtype = DType::f32;  ///< in the file
    std::uint64_t elems = 0;
  };
  virtual ~WeightsSource() = default;

  /// In the order in which they are to be registered.
  [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
  /// What the files say beside the tensors, for the checkpoint's entries.
  [[nodiscard]] const std::map<std::string, std::string>& entries() const noexcept {
    return entries_;
  }
  /// All elements of one, in the order of memory. From any thread.
  virtual void read(std::size_t tensor, FloatSink sink) const = 0;

 protected:
  std::vector<Tensor> tensors_;
  std::map<std::string, std::string> entries_;
};

/// `path`: one safetensors file, or a folder with `model.safetensors.index.json` or with one such
/// file. @throws Error{bad_checkpoint} naming the file and the place; Error{io_failure}.
[[nodiscard]] std::unique_ptr<WeightsSource> open_safetensors(FileSystem& files,
                                                              const std::string& path);
/// A `.bin` of llm.c, version 3 (FP32) or 5 (BF16), under the names and in the layout of a
/// transformer of examples/gpt. @throws the same; Error{unsupported} for another version.
[[nodiscard]] std::unique_ptr<WeightsSource> open_llmc(FileSystem& files, const std::string& path);

}  // namespace outboard::ckpt
