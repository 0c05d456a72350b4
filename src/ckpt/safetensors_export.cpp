// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "ckpt/export_file.hpp"
#include "ckpt/export_target.hpp"
#include "ckpt/format.hpp"
#include "ckpt/json.hpp"
#include "ckpt/manifest.hpp"
#include "ckpt/master_reader.hpp"
#include "ckpt/padded.hpp"
#include "ckpt/tensor_file.hpp"
#include "ckpt/weights_export.hpp"
#include "ckpt/weights_header.hpp"
#include "outboard/error.hpp"

namespace outboard::ckpt {
namespace {

/// Tensors of one file, and the parameters that they are.
struct Shard {
  std::string name;
  std::vector<WeightTensor> tensors;
  std::vector<std::size_t> parameters;
  std::uint64_t bytes = 0;         // of tensors
  std::uint64_t header_bytes = 0;  // upper bound
};

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "export: " + why);
}

WeightTensor tensor_of(const ParameterEntry& entry, const WeightsFormat& format) {
  WeightTensor tensor;
  const auto name = format.names.find(entry.name());
  tensor.name = name == format.names.end() ? entry.name() : name->second;
  tensor.dtype = format.dtype;
  tensor.elems = entry.elems;
  tensor.shape = {entry.elems};
  const auto shape = format.shapes.find(entry.name());
  if (shape == format.shapes.end()) return tensor;
  tensor.shape = shape->second;
  std::uint64_t elems = 1;
  for (const std::uint64_t size : tensor.shape) {
    if (size != 0 && elems > kMaxElems / size)
      refuse("the shape of '" + entry.name() + "' is too large");
    elems *= size;
  }
  if (elems == entry.elems) return tensor;
  refuse("the shape given for '" + entry.name() + "' has " + std::to_string(elems) +
         " elements and the parameter " + std::to_string(entry.elems));
}

/// A name or a shape for what is not there is a slip that would stay unseen.
void require_known(const Manifest& manifest, const WeightsFormat& format) {
  const auto require = [&](const std::string& name) {
    if (std::ranges::any_of(manifest.parameters,
                            [&](const ParameterEntry& entry) { return entry.name() == name; })) {
      return;
    }
    refuse("the checkpoint has no parameter '" + name + "' to rename or to give a shape");
  };
  for (const auto& [own, other] : format.names) require(own);
  for (const auto& [own, shape] : format.shapes) require(own);
}

std::vector<Shard> plan_shards(const Manifest& manifest, const WeightsFormat& format) {
  require_known(manifest, format);
  std::vector<Shard> shards(1);
  std::set<std::string> names;
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    WeightTensor tensor = tensor_of(manifest.parameters[i], format);
    if (!is_utf8(tensor.name))
      refuse("the name given for '" + manifest.parameters[i].name() + "' is not UTF-8");
    if (!names.insert(tensor.name).second || tensor.name == "__metadata__") {
      refuse("two tensors would be called '" + tensor.name + "'");
    }
    const std::uint64_t entry =
        header_bytes_of({tensor.name, tensor.elems}) + 21 * tensor.shape.size();
    const bool full = shards.back().bytes + tensor.bytes() > format.max_shard_bytes ||
                      shards.back().header_bytes + entry > kMaxHeaderBytes / 2;
    if (full && !shards.back().tensors.empty()) shards.emplace_back();
    shards.back().bytes += tensor.bytes();
    shards.back().header_bytes += entry;
    shards.back().tensors.push_back(std::move(tensor));
    shards.back().parameters.push_back(i);
  }
  return shards;
}

void name_shards(std::vector<Shard>& shards) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = shards.size() == 1 ? "model.safetensors"
                                        : "model-" + padded(i + 1, 5) + "-of-" +
                                              padded(shards.size(), 5) + ".safetensors";
  }
}

std::string index_of(const std::vector<Shard>& shards, std::uint64_t total) {
  nlohmann::ordered_json json;
  json["metadata"] = {{"total_size", total}};
  json["weight_map"] = nlohmann::ordered_json::object();
  for (const Shard& shard : shards) {
    for (const WeightTensor& tensor : shard.tensors) json["weight_map"][tensor.name] = shard.name;
  }
  return json.dump(2) + "\n";
}

void write_shard(FileSystem& files, const std::string& folder, const Checkpoint& checkpoint,
                 Shard& shard, ExportedWeights& report) {
  ExportFile file(files, join(folder, shard.name), shard.tensors.front().dtype);
  const std::string header = make_weights_header(shard.tensors);
  file.raw(std::as_bytes(std::span(header)));
  for (const std::size_t parameter : shard.parameters) {
    read_master(checkpoint, parameter, [&](std::span<const float> values) { file.values(values); });
  }
  file.finish();
  report.bytes += file.bytes();
  report.overflowed += file.overflowed();
  report.tensors += shard.tensors.size();
  report.files.push_back(shard.name);
}

}  // namespace

ExportedWeights export_safetensors(FileSystem& files, const Checkpoint& checkpoint,
                                   const std::string& target, const WeightsFormat& format) {
  std::vector<Shard> shards = plan_shards(checkpoint.manifest(), format);
  if (shards.front().tensors.empty()) refuse("'" + checkpoint.folder() + "' has no parameters");
  name_shards(shards);
  std::uint64_t bytes = 0, with_headers = 0;
  for (const Shard& shard : shards) {
    bytes += shard.bytes;
    with_headers += shard.bytes + 2 * shard.header_bytes;
  }
  ExportTarget place(files, target, with_headers);
  place.make_folder();
  ExportedWeights report;
  for (Shard& shard : shards) write_shard(files, place.place(), checkpoint, shard, report);
  if (shards.size() > 1) {
    const std::string index = index_of(shards, bytes);
    report.files.emplace_back("model.safetensors.index.json");
    ExportFile file(files, join(place.place(), report.files.back()), DType::f32);
    file.raw(std::as_bytes(std::span(index)));
    file.finish();
    report.bytes += file.bytes();
  }
  place.publish();
  return report;
}

}  // namespace outboard::ckpt
