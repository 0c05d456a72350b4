// SPDX-License-Identifier: Apache-2.0
#include "outboard/interchange.hpp"

#include <bit>
#include <cmath>
#include <memory>
#include <set>

#include "ckpt/format.hpp"
#include "ckpt/reader.hpp"
#include "ckpt/weights_export.hpp"
#include "ckpt/weights_source.hpp"
#include "ckpt/writer.hpp"
#include "core/mix64.hpp"
#include "optim/state_layout.hpp"
#include "outboard/error.hpp"
#include "outboard/version.hpp"
#include "simd/digest.hpp"

namespace outboard {
namespace {

std::unique_ptr<ckpt::WeightsSource> open(const std::string& source, WeightsFile file) {
  ckpt::FileSystem& files = ckpt::posix_file_system();
  return file == WeightsFile::llmc ? ckpt::open_llmc(files, source)
                                   : ckpt::open_safetensors(files, source);
}

/// Masters from a file, all else zero.
class ImportSource final : public ckpt::StateSource {
 public:
  explicit ImportSource(const ckpt::WeightsSource& weights) : weights_(weights) {}

  void read(std::size_t parameter, std::size_t stream, Sink sink) override {
    if (stream == 0) {
      return weights_.read(parameter,
                           [&](std::span<const float> values) { sink(std::as_bytes(values)); });
    }
    const std::vector<std::byte> zeros(ckpt::kPieceBytes);
    std::uint64_t left = weights_.tensors()[parameter].elems * sizeof(float);
    while (left > 0) {
      const auto piece = std::span(zeros).first(std::min<std::uint64_t>(left, zeros.size()));
      sink(piece);
      left -= piece.size();
    }
  }

 private:
  const ckpt::WeightsSource& weights_;
};

[[noreturn]] void refuse_value(float value, std::uint64_t element, const std::string& name,
                               const std::string& source) {
  std::string text = "'" + source;
  text += "': element " + std::to_string(element) + " of tensor '";
  text += name;
  text += std::isnan(value) ? "' is NaN" : "' is infinite";
  throw Error(ErrorCode::bad_checkpoint,
              text + "; a model with it cannot be trained: import another file");
}

void require_finite(std::span<const float> values, std::uint64_t first, const std::string& name,
                    const std::string& source) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) refuse_value(values[i], first + i, name, source);
  }
}

/// As Engine::state_digest() is, of a state of masters alone.
std::uint64_t digest_of(const ckpt::WeightsSource& weights, double loss_scale,
                        const std::string& source) {
  std::uint64_t sum = core::digest_of_scale(loss_scale);
  for (std::size_t i = 0; i < weights.tensors().size(); ++i) {
    sum += core::digest_of_steps(i, 0);
    std::uint64_t first = 0;
    weights.read(i, [&](std::span<const float> values) {
      require_finite(values, first, weights.tensors()[i].name, source);
      sum += simd::digest_state(
          {.parameter = i, .first_element = first, .param = values, .state = {}});
      first += values.size();
    });
  }
  return sum;
}

/// The names that the tensors get. @throws Error{invalid_argument}
std::vector<std::string> names_of(const ckpt::WeightsSource& weights,
                                  const std::map<std::string, std::string>& names) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "import: " + why);
  };
  std::vector<std::string> all;
  std::set<std::string> seen, renamed;
  for (const ckpt::WeightsSource::Tensor& tensor : weights.tensors()) {
    const auto found = names.find(tensor.name);
    if (found != names.end()) renamed.insert(tensor.name);
    all.push_back(found == names.end() ? tensor.name : found->second);
    if (!seen.insert(all.back()).second) refuse("two tensors would be called '" + all.back() + "'");
  }
  for (const auto& [own, other] : names) {
    if (!renamed.contains(own)) refuse("the file has no tensor '" + own + "' to rename");
  }
  return all;
}

ckpt::Manifest manifest_of(const ckpt::WeightsSource& weights, const std::string& source,
                           const ImportOptions& options) {
  ckpt::Manifest manifest;
  manifest.written_by = std::string("outboard ") + kVersion + ", imported";
  const double scale = options.loss_scaling.initial_scale;
  manifest.dynamic_loss_scale = options.loss_scaling.dynamic;
  manifest.loss_scale = {.scale = scale, .scale_before_row = scale};
  manifest.groups = {{AdamW{}, {}}};
  manifest.imported = true;
  manifest.entries = weights.entries();
  const auto names = names_of(weights, options.names);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const ckpt::WeightsSource::Tensor& tensor = weights.tensors()[i];
    ckpt::ParameterEntry& entry = manifest.parameters.emplace_back();
    entry.names = {names[i]};
    entry.dtype = options.dtype.value_or(tensor.dtype);
    entry.elems = tensor.elems;
    for (const auto stream : optim::stream_names(manifest.groups[0])) {
      entry.streams.push_back({std::string(stream), 0, 0});
    }
  }
  manifest.digest = digest_of(weights, scale, source);
  return manifest;
}

/// What the other kind of file would use.
void require_used(const ExportOptions& options) {
  const auto refuse = [](const char* what, const char* where) {
    throw Error(ErrorCode::invalid_argument, std::string("export: ") + what + " is for files of " +
                                                 where + "; leave it, or choose that format");
  };
  const ExportOptions none;
  if (options.file == WeightsFile::safetensors && options.heads != 0) {
    refuse("a number of heads", "llm.c");
  }
  if (options.file != WeightsFile::llmc) return;
  if (!options.names.empty()) refuse("a tensor's name", "safetensors");
  if (!options.shapes.empty()) refuse("a tensor's shape", "safetensors");
  if (options.max_shard_bytes != none.max_shard_bytes) refuse("a shard's size", "safetensors");
}

}  // namespace

ExportReport export_weights(const std::string& checkpoint, const std::string& target,
                            const ExportOptions& options) {
  require_used(options);
  ckpt::FileSystem& files = ckpt::posix_file_system();
  const ckpt::Checkpoint from = ckpt::Checkpoint::open(files, checkpoint);
  const ckpt::WeightsFormat format{.dtype = options.dtype,
                                   .max_shard_bytes = options.max_shard_bytes,
                                   .names = options.names,
                                   .shapes = options.shapes,
                                   .heads = options.heads};
  const ckpt::ExportedWeights written = options.file == WeightsFile::llmc
                                            ? ckpt::export_llmc(files, from, target, format)
                                            : ckpt::export_safetensors(files, from, target, format);
  return {from.folder(), written.files, written.bytes, written.tensors, written.overflowed};
}

SaveReport import_weights(const std::string& source, const std::string& folder,
                          const ImportOptions& options) {
  options.loss_scaling.validate();
  const auto weights = open(source, options.file);
  ckpt::SaveRequest request{manifest_of(*weights, source, options), 0, SaveOptions().file_bytes, 1};
  const std::uint64_t digest = request.manifest.digest;
  ImportSource state(*weights);
  const ckpt::SavedCheckpoint saved =
      ckpt::save(ckpt::posix_file_system(), folder, std::move(request), state);
  return {saved.folder, saved.bytes, digest, saved.note};
}

}  // namespace outboard
