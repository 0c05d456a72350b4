// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "ckpt/checksum.hpp"
#include "ckpt/format.hpp"
#include "ckpt/json.hpp"
#include "ckpt/manifest.hpp"
#include "ckpt/manifest_end.hpp"
#include "ckpt/rule_json.hpp"

namespace outboard::ckpt {
namespace {

using Ordered = nlohmann::ordered_json;

void require_utf8(const std::string& text, const std::string& what) {
  if (is_utf8(text)) return;
  throw Error(ErrorCode::invalid_argument,
              "save(): the name of " + what +
                  " is not valid UTF-8, which a checkpoint cannot hold: "
                  "'" +
                  Json(text).dump(-1, ' ', true, Json::error_handler_t::replace) + "'; rename it");
}

Ordered loss_scale_json(const Manifest& manifest) {
  const optim::LossScaler::State& state = manifest.loss_scale;
  return {{"dynamic", manifest.dynamic_loss_scale},
          {"scale", state.scale},
          {"clean_steps", state.clean_steps},
          {"overflows_in_a_row", state.overflows_in_a_row},
          {"scale_before_row", state.scale_before_row},
          {"halvings_in_row", state.halvings_in_row}};
}

Ordered settings_json(const Settings& settings) {
  return {{"max_grad_norm", settings.max_grad_norm},
          {"accumulate", settings.accumulate == Accumulate::host ? "host" : "trainer"},
          {"growth_interval", settings.growth_interval},
          {"min_scale", settings.min_scale},
          {"max_scale", settings.max_scale}};
}

Ordered parameter_json(const ParameterEntry& parameter) {
  Ordered json;
  json["names"] = parameter.names;
  json["dtype"] = dtype_name(parameter.dtype);
  json["elems"] = parameter.elems;
  json["group"] = parameter.group;
  json["step_count"] = parameter.step_count;
  json["streams"] = Ordered::array();
  for (const StreamEntry& stream : parameter.streams) {
    json["streams"].push_back(
        {{"name", stream.name}, {"file", stream.file}, {"checksum", to_hex(stream.checksum)}});
  }
  return json;
}

Ordered file_json(const FileEntry& file) {
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"checksum", to_hex(file.checksum)},
          {"header_checksum", to_hex(file.header_checksum)}};
}

/// Text as it is, other bytes in hexadecimal.
Ordered entry_json(const std::string& bytes) {
  if (is_utf8(bytes)) return bytes;
  std::string hex;
  for (const char byte : bytes) {
    hex += "0123456789abcdef"[(static_cast<unsigned char>(byte) >> 4) & 15];
    hex += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
  }
  return {{"hex", hex}};
}

template <class Items, class Make>
std::string list_of(const Items& items, Make make) {
  std::string text = "[";
  for (std::size_t i = 0; i < items.size(); ++i) {
    text += (i == 0 ? "\n  " : ",\n  ") + make(items[i]).dump();
  }
  return text + "\n]";
}

}  // namespace

bool is_utf8(const std::string& text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

std::string tensor_name(std::string_view stream, std::string_view parameter) {
  std::string name(stream);
  return (name += '/') += parameter;
}

void require_utf8(const Manifest& manifest) {
  for (const ParameterEntry& parameter : manifest.parameters) {
    for (const std::string& name : parameter.names) require_utf8(name, "a parameter");
  }
  for (const auto& entry : manifest.entries) require_utf8(entry.first, "an entry");
}

std::string write_manifest(const Manifest& manifest) {
  require_utf8(manifest);
  Ordered entries = Ordered::object();
  for (const auto& [key, value] : manifest.entries) entries[key] = entry_json(value);
  const Counters& counters = manifest.counters;
  const Ordered constants = {{"endianness", "little"},
                             {"data_align", kDataAlign},
                             {"checksum", "xxh3-64"},
                             {"digest_hash", "splitmix64-sum"}};
  const Ordered counts = {{"steps", counters.steps},
                          {"applied", counters.applied},
                          {"skipped", counters.skipped},
                          {"partial", counters.partial}};
  std::string text = "{\n";
  const auto add = [&](const char* key, const std::string& value) {
    text += "\"" + std::string(key) + "\": " + value + ",\n";
  };
  add("format", Json(kFormatName).dump());
  add("format_version", std::to_string(kFormatVersion));
  add("written_by", Json(manifest.written_by).dump());
  add("constants", constants.dump());
  add("digest", "\"" + to_hex(manifest.digest) + "\"");
  add("counters", counts.dump());
  add("accumulation", std::to_string(manifest.accumulation));
  add("loss_scale", loss_scale_json(manifest).dump());
  if (manifest.imported) add("imported", "true");
  if (manifest.settings) add("settings", settings_json(*manifest.settings).dump());
  add("groups", list_of(manifest.groups, group_to_json));
  add("files", list_of(manifest.files, file_json));
  add("parameters", list_of(manifest.parameters, parameter_json));
  add("entries", entries.dump());
  return text + manifest_end(checksum_of(text));
}

}  // namespace outboard::ckpt
