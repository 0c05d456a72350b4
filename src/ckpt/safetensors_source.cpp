// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <deque>
#include <set>

#include "ckpt/format.hpp"
#include "ckpt/header_parts.hpp"
#include "ckpt/json.hpp"
#include "ckpt/tensor_file.hpp"
#include "ckpt/weights_header.hpp"
#include "ckpt/weights_source.hpp"

namespace outboard::ckpt {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSuffix = ".safetensors";

/// Files in the order of their names, and what each is to hold; without an index whatever it does.
struct Shards {
  std::string folder;
  std::map<std::string, std::set<std::string>> tensors;
  bool indexed = false;
};

Shards read_index(FileSystem& files, const std::string& folder) {
  const std::string path = join(folder, kIndex);
  const Json parsed = parse_json(read_text(files, path, kMaxManifestBytes), path);
  const JsonRef map = JsonRef(parsed, {path, ""}).at("weight_map");
  if (!map.value().is_object()) map.place().refuse("is no object");
  Shards shards{.folder = folder, .tensors = {}, .indexed = true};
  for (const auto& [name, file] : map.value().items()) {
    shards.tensors[JsonRef(file, map.place().member(name)).file_name()].insert(name);
  }
  return shards;
}

Shards find_shards(FileSystem& files, const std::string& path) {
  std::vector<std::string> names;
  const CallResult listed = files.list(path, names);
  if (listed.error == ENOTDIR) return {.folder = "", .tensors = {{path, {}}}};
  names = list(files, path);
  if (std::ranges::find(names, kIndex) != names.end()) return read_index(files, path);
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(kSuffix); });
  if (names.size() == 1) return {.folder = path, .tensors = {{names.front(), {}}}};
  throw Error(ErrorCode::io_failure, "'" + path + "' holds no '" + std::string(kIndex) + "' and " +
                                         std::to_string(names.size()) +
                                         " files of safetensors; give one of the files, or a "
                                         "folder with an index or with one of them");
}

class SafetensorsSource final : public WeightsSource {
 public:
  SafetensorsSource(FileSystem& files, const std::string& path) {
    const Shards shards = find_shards(files, path);
    for (const auto& [name, wanted] : shards.tensors) {
      add_file(files, shards.folder.empty() ? name : join(shards.folder, name),
               shards.indexed ? &wanted : nullptr);
    }
  }

  void read(std::size_t tensor, FloatSink sink) const override {
    const Place& place = places_[tensor];
    read_elements(*place.file, place.offset, tensors_[tensor].elems, tensors_[tensor].dtype, sink);
  }

 private:
  struct Place {
    const File* file = nullptr;
    std::uint64_t offset = 0;
  };

  void add_file(FileSystem& files, const std::string& path, const std::set<std::string>* wanted) {
    const File& file = opened_.emplace_back(File::open(files, path));
    const JsonPlace place{path, ""};
    const std::uint64_t size = file.size();
    const auto found = parse_weights_header(read_header(file, size), size, path);
    if (wanted && wanted->size() != found.size()) {
      place.refuse("has " + std::to_string(found.size()) + " tensors where the index has " +
                   std::to_string(wanted->size()));
    }
    for (const WeightTensor& tensor : found) {
      if (wanted && !wanted->contains(tensor.name)) {
        place.refuse("has a tensor '" + tensor.name + "' that the index does not have there");
      }
      tensors_.push_back({tensor.name, tensor.dtype, tensor.elems});
      places_.push_back({&file, tensor.offset});
    }
  }

  std::deque<File> opened_;
  std::vector<Place> places_;  // by tensor
};

}  // namespace

std::unique_ptr<WeightsSource> open_safetensors(FileSystem& files, const std::string& path) {
  return std::make_unique<SafetensorsSource>(files, path);
}

}  // namespace outboard::ckpt
