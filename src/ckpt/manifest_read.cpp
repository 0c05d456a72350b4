// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <set>
#include <string>

#include "ckpt/checksum.hpp"
#include "ckpt/format.hpp"
#include "ckpt/json.hpp"
#include "ckpt/manifest.hpp"
#include "ckpt/manifest_end.hpp"
#include "ckpt/manifest_version.hpp"
#include "ckpt/rule_json.hpp"
#include "optim/state_layout.hpp"

namespace outboard::ckpt {
namespace {

void require_checksum(std::string_view text, const JsonPlace& place) {
  const std::size_t end = manifest_end(0).size();
  if (text.size() < end) place.refuse("is too short to be a manifest");
  const std::string_view before = text.substr(0, text.size() - end);
  if (text.substr(before.size()) == manifest_end(checksum_of(before))) return;
  place.refuse("does not have the checksum that it says it has");
}

void require_format(const JsonRef& json) {
  (void)json.at("format").text();
  if (json.at("format_version").count() == 0) json.at("format_version").place().refuse("is 0");
}

void require_constants(const JsonRef& json) {
  const auto require = [&](const char* key, const std::string& expected) {
    if (json.at(key).text() == expected) return;
    json.at(key).place().refuse("is not '" + expected + "'");
  };
  require("endianness", "little");
  require("checksum", "xxh3-64");
  require("digest_hash", "splitmix64-sum");
}

double power_of_two(const JsonRef& json) {
  const double value = json.number();
  int exponent = 0;
  if (!(value > 0.0) || std::frexp(value, &exponent) != 0.5) {
    json.place().refuse("is no power of two");
  }
  return value;
}

optim::LossScaler::State read_loss_scale(const JsonRef& json) {
  optim::LossScaler::State state;
  state.scale = power_of_two(json.at("scale"));
  state.clean_steps = json.at("clean_steps").count32();
  state.overflows_in_a_row = json.at("overflows_in_a_row").count32();
  state.scale_before_row = power_of_two(json.at("scale_before_row"));
  state.halvings_in_row = json.at("halvings_in_row").count32();
  return state;
}

Settings read_settings(const JsonRef& json) {
  const std::string accumulate = json.at("accumulate").text();
  if (accumulate != "host" && accumulate != "trainer") {
    json.at("accumulate").place().refuse("is '" + accumulate + "' and may be 'host' or 'trainer'");
  }
  return {.max_grad_norm = json.at("max_grad_norm").number(),
          .accumulate = accumulate == "host" ? Accumulate::host : Accumulate::trainer,
          .growth_interval = json.at("growth_interval").count32(),
          .min_scale = json.at("min_scale").number(),
          .max_scale = json.at("max_scale").number()};
}

DType dtype_named(const JsonRef& json) {
  const std::string text = json.text();
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    if (text == dtype_name(dtype)) return dtype;
  }
  json.place().refuse("is '" + text + "' and may be 'f16', 'bf16' or 'f32'");
}

void read_streams(const JsonRef& json, const Manifest& manifest, ParameterEntry& parameter) {
  const auto names = optim::stream_names(manifest.groups[parameter.group]);
  if (json.items() != names.size()) {
    json.place().refuse("has not the streams of its group's rule");
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const JsonRef item = json.item(i);
    StreamEntry& stream = parameter.streams.emplace_back();
    stream.name = item.at("name").text();
    if (stream.name != names[i]) {
      item.place().refuse("is '" + stream.name + "' where its group's rule has '" +
                          std::string(names[i]) + "'");
    }
    stream.file = static_cast<std::uint32_t>(item.at("file").count());
    if (item.at("file").count() >= manifest.files.size()) {
      item.at("file").place().refuse("is no index into files");
    }
    stream.checksum = item.at("checksum").bits();
  }
}

ParameterEntry read_parameter(const JsonRef& json, const Manifest& manifest,
                              std::set<std::string>& known) {
  ParameterEntry parameter;
  const JsonRef names = json.at("names");
  for (std::size_t i = 0; i < names.items(); ++i) {
    parameter.names.push_back(names.item(i).text());
    if (!known.insert(parameter.names.back()).second) names.item(i).place().refuse("is not unique");
  }
  if (parameter.names.empty()) names.place().refuse("is empty");
  parameter.dtype = dtype_named(json.at("dtype"));
  parameter.elems = json.at("elems").count(kMaxElems);
  const JsonRef group = json.at("group");
  if (group.count() >= manifest.groups.size()) group.place().refuse("is no index into groups");
  parameter.group = group.count32();
  parameter.step_count = json.at("step_count").count(std::uint64_t{1} << 53);
  read_streams(json.at("streams"), manifest, parameter);
  return parameter;
}

void read_files(const JsonRef& json, Manifest& manifest) {
  std::set<std::string> known;
  if (json.items() > kMaxFiles) json.place().refuse("has too many items");
  for (std::size_t i = 0; i < json.items(); ++i) {
    const JsonRef item = json.item(i);
    FileEntry& file = manifest.files.emplace_back();
    file.name = item.at("name").file_name();
    if (!known.insert(file.name).second) item.at("name").place().refuse("is not unique");
    file.bytes = item.at("bytes").count(std::uint64_t{INT64_MAX});
    file.checksum = item.at("checksum").bits();
    file.header_checksum = item.at("header_checksum").bits();
  }
}

std::string read_entry(const JsonRef& json) {
  if (json.value().is_string()) return json.text();
  const std::string hex = json.at("hex").text();
  if (hex.size() % 2 != 0) json.place().refuse("has an odd number of hexadecimal digits");
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const auto value = from_hex("00000000000000" + hex.substr(i, 2));
    if (!value) json.place().refuse("has what is no hexadecimal digit");
    bytes += static_cast<char>(static_cast<unsigned char>(*value));
  }
  return bytes;
}

void read_entries(const JsonRef& json, Manifest& manifest) {
  if (!json.value().is_object()) json.place().refuse("is no object");
  for (const auto& [key, value] : json.value().items()) {
    manifest.entries.emplace(key, read_entry(JsonRef(value, json.place().member(key))));
  }
}

}  // namespace

Manifest read_manifest(std::string_view text, const std::string& file) {
  const JsonPlace place{file, ""};
  require_checksum(text, place);
  require_version(text, place);
  const Json parsed = parse_json(text, file);
  const JsonRef json(parsed, place);
  require_format(json);
  require_constants(json.at("constants"));
  Manifest manifest;
  manifest.written_by = json.at("written_by").text();
  manifest.digest = json.at("digest").bits();
  const JsonRef counters = json.at("counters");
  manifest.counters = {counters.at("steps").count(), counters.at("applied").count(),
                       counters.at("skipped").count(), counters.at("partial").count()};
  manifest.accumulation = json.at("accumulation").count32();
  if (manifest.accumulation == 0) json.at("accumulation").place().refuse("is 0");
  manifest.dynamic_loss_scale = json.at("loss_scale").at("dynamic").flag();
  manifest.loss_scale = read_loss_scale(json.at("loss_scale"));
  if (json.has("imported")) manifest.imported = json.at("imported").flag();
  if (json.has("settings")) manifest.settings = read_settings(json.at("settings"));
  for (std::size_t i = 0; i < json.at("groups").items(); ++i) {
    manifest.groups.push_back(group_from_json(json.at("groups").item(i)));
  }
  read_files(json.at("files"), manifest);
  std::set<std::string> known;
  const JsonRef parameters = json.at("parameters");
  for (std::size_t i = 0; i < parameters.items(); ++i) {
    manifest.parameters.push_back(read_parameter(parameters.item(i), manifest, known));
  }
  read_entries(json.at("entries"), manifest);
  return manifest;
}

}  // namespace outboard::ckpt
