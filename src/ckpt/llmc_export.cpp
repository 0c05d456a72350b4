// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <map>

#include "ckpt/export_file.hpp"
#include "ckpt/export_target.hpp"
#include "ckpt/llmc_layout.hpp"
#include "ckpt/master_reader.hpp"
#include "ckpt/weights_export.hpp"
#include "core/round_up.hpp"
#include "outboard/error.hpp"

namespace outboard::ckpt {
namespace {

/// The parameters of a checkpoint by name, of which an llm.c file is to be made.
class Gpt {
 public:
  explicit Gpt(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
    const auto& parameters = checkpoint.manifest().parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) by_name_[parameters[i].name()] = i;
  }

  /// Of the sizes of its parameters, each of which is looked at again in require().
  [[nodiscard]] LlmcShape shape(const WeightsFormat& format) const {
    LlmcShape shape{.width = elems("ln_f.gain"), .dtype = format.dtype};
    if (shape.width == 0) refuse("parameter 'ln_f.gain' is empty");
    shape.vocab = elems("wte") / shape.width;
    shape.context = elems("wpe") / shape.width;
    while (by_name_.contains("block" + std::to_string(shape.layers) + ".ln_1.gain")) {
      shape.layers += 1;
    }
    shape.padded_vocab = core::round_up(shape.vocab, kLlmcVocabStep);
    shape.heads = format.heads != 0 ? format.heads : saved_heads();
    if (shape.width % shape.heads != 0) {
      throw Error(ErrorCode::invalid_argument,
                  "export: " + std::to_string(shape.heads) + " heads of attention" +
                      (format.heads != 0 ? "" : ", as the checkpoint's entry 'heads' says,") +
                      " cannot share a width of " + std::to_string(shape.width) +
                      "; give the model's own number (--heads)");
    }
    return parse_llmc_header(make_llmc_header(shape), checkpoint_.folder());
  }
  /// That these and no others are there.
  void require(const std::vector<LlmcTensor>& tensors) const {
    for (const LlmcTensor& tensor : tensors) {
      if (elems(tensor.name) == tensor.elems()) continue;
      refuse("parameter '" + tensor.name + "' has " + std::to_string(elems(tensor.name)) +
             " elements and a GPT-2 of this width and depth " + std::to_string(tensor.elems()));
    }
    if (by_name_.size() == tensors.size()) return;
    refuse("it has " + std::to_string(by_name_.size()) + " parameters and a GPT-2 of its depth " +
           std::to_string(tensors.size()));
  }
  [[nodiscard]] std::size_t index(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) refuse("it has no parameter '" + name + "'");
    return found->second;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::unsupported, "export: '" + checkpoint_.folder() +
                                            "' is no transformer of examples/gpt, which alone has "
                                            "the form of llm.c: " +
                                            why + "; export it as safetensors");
  }
  [[nodiscard]] std::uint64_t elems(const std::string& name) const {
    return checkpoint_.manifest().parameters[index(name)].elems;
  }
  [[nodiscard]] std::uint64_t saved_heads() const {
    const auto& entries = checkpoint_.manifest().entries;
    const auto entry = entries.find("heads");
    std::uint64_t heads = 0;
    if (entry != entries.end()) {
      const std::string& text = entry->second;
      std::from_chars(text.data(), text.data() + text.size(), heads);
    }
    if (heads != 0) return heads;
    throw Error(
        ErrorCode::invalid_argument,
        "export: '" + checkpoint_.folder() +
            "' does not say how many heads of attention its model has; give them (--heads)");
  }

  const Checkpoint& checkpoint_;
  std::map<std::string, std::size_t> by_name_;
};

void write_tensor(const Checkpoint& checkpoint, std::size_t parameter, const LlmcTensor& tensor,
                  ExportFile& file) {
  const auto write = [&](std::span<const float> values) { file.values(values); };
  if (tensor.transposed) {
    return read_master_transposed(checkpoint, parameter, {tensor.cols, tensor.rows}, write);
  }
  read_master(checkpoint, parameter, write);
  const std::vector<float> zeros(tensor.cols);
  for (std::uint64_t row = 0; row < tensor.padding_rows; ++row) file.values(zeros);
}

}  // namespace

ExportedWeights export_llmc(FileSystem& files, const Checkpoint& checkpoint,
                            const std::string& target, const WeightsFormat& format) {
  if (format.dtype == DType::f16) {
    throw Error(ErrorCode::invalid_argument, "export: a file of llm.c is f32 or bf16, not f16");
  }
  const Gpt gpt(checkpoint);
  const LlmcShape shape = gpt.shape(format);
  const auto tensors = llmc_tensors(shape);
  gpt.require(tensors);
  ExportTarget place(files, target, llmc_file_bytes(shape));
  ExportFile file(files, place.place(), shape.dtype);
  place.made_file();
  const LlmcHeader header = make_llmc_header(shape);
  file.raw(std::as_bytes(std::span(header)));
  for (const LlmcTensor& tensor : tensors) {
    write_tensor(checkpoint, gpt.index(tensor.name), tensor, file);
  }
  file.finish();
  place.publish();
  return {{target}, file.bytes(), tensors.size(), file.overflowed()};
}

}  // namespace outboard::ckpt
