// SPDX-License-Identifier: Apache-2.0
#include "cli/interchange.hpp"

#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command_line.hpp"
#include "outboard/interchange.hpp"

namespace outboard::cli {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw UsageError("--rename '" + file + "': " + why +
                   R"(; give {"own": "other"} or {"own": {"name": "other", "shape": [2, 3]}})");
}

void read_entry(const std::string& own, const json& entry, const std::string& file, Names& out) {
  if (entry.is_string()) {
    out.names[own] = entry.get<std::string>();
    return;
  }
  const bool known = entry.is_object() && !entry.empty() &&
                     entry.size() == entry.count("name") + entry.count("shape");
  if (!known) refuse(file, "'" + own + "' is neither a name nor an object of name and shape");
  if (entry.contains("name")) {
    if (!entry["name"].is_string()) refuse(file, "the name of '" + own + "' is no string");
    out.names[own] = entry["name"].get<std::string>();
  }
  if (!entry.contains("shape")) return;
  if (!entry["shape"].is_array()) refuse(file, "the shape of '" + own + "' is no array");
  for (const json& size : entry["shape"]) {
    if (!size.is_number_unsigned()) refuse(file, "the shape of '" + own + "' has no whole numbers");
    out.shapes[own].push_back(size.get<std::uint64_t>());
  }
}

Names read_names(const std::string& file) {
  if (file.empty()) return {};
  std::ifstream in(file, std::ios::binary);
  if (!in) throw UsageError("cannot read --rename '" + file + "'");
  return parse_names({std::istreambuf_iterator<char>(in), {}}, file);
}

std::optional<DType> dtype_of(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (text == dtype_name(dtype)) return dtype;
  }
  return {};
}

WeightsFile file_of(const std::string& format) {
  return format == "llmc" ? WeightsFile::llmc : WeightsFile::safetensors;
}

void run_export(const InterchangeWords& words) {
  const Names names = read_names(words.rename);
  const ExportReport report = export_weights(words.from, words.to,
                                             {.file = file_of(words.format),
                                              .dtype = dtype_of(words.dtype).value_or(DType::f32),
                                              .max_shard_bytes = words.max_shard_bytes,
                                              .names = names.names,
                                              .shapes = names.shapes,
                                              .heads = words.heads});
  std::cout << report.checkpoint << ": " << report.tensors << " tensors to " << words.to << ", "
            << report.files.size() << (report.files.size() == 1 ? " file, " : " files, ")
            << report.bytes << " bytes\n";
  if (report.overflowed == 0) return;
  std::cerr << "warning: " << report.overflowed << " weights are too large for " << words.dtype
            << " and infinite in it; export bf16 or f32\n";
}

void run_import(const InterchangeWords& words) {
  const Names names = read_names(words.rename);
  if (!names.shapes.empty()) {
    throw UsageError("--rename '" + words.rename + "': the shape of '" +
                     names.shapes.begin()->first + "' is for an export; an import keeps none");
  }
  ImportOptions options{
      .file = file_of(words.format), .dtype = dtype_of(words.dtype), .names = names.names};
  if (words.static_loss_scale > 0.0) {
    options.loss_scaling = {.dynamic = false, .initial_scale = words.static_loss_scale};
  }
  const SaveReport report = import_weights(words.from, words.to, options);
  std::cout << report.folder << ": " << report.bytes << " bytes\n";
}

CLI::App* add(CLI::App& checkpoints, const char* name, const char* what, InterchangeWords& words) {
  CLI::App* one = checkpoints.add_subcommand(name, what);
  one->add_option("from", words.from, "what is read")->required();
  one->add_option("to", words.to, "what is made")->required();
  one->add_option("--format", words.format,
                  "safetensors (files as Hugging Face's libraries have them) or llmc (a .bin of "
                  "GPT-2 weights)")
      ->check(CLI::IsMember({"safetensors", "llmc"}));
  one->add_option("--rename", words.rename,
                  R"(a JSON file of names: {"own": "other"}; to export also shapes)");
  return one;
}

}  // namespace

void add_interchange(CLI::App& checkpoints, InterchangeWords& words) {
  CLI::App* out =
      add(checkpoints, "export", "write a checkpoint's FP32 masters for other programs", words);
  out->add_option("--dtype", words.dtype, "of the tensors (default: f32)")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  out->add_option("--max-shard-size", words.max_shard_bytes,
                  "bytes of tensors in one file of safetensors, as 5GB")
      ->transform(CLI::AsSizeValue(true));
  out->add_option("--heads", words.heads,
                  "llmc: heads of attention (default: what the checkpoint says)");
  out->callback([&words] { words.exports = true; });
  CLI::App* in =
      add(checkpoints, "import", "make a checkpoint of weights, with moments of zero", words);
  in->add_option("--dtype", words.dtype, "of the device's weights (default: the file's)")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  in->add_option("--static-loss-scale", words.static_loss_scale,
                 "for an engine without dynamic loss scaling")
      ->check(CLI::PositiveNumber);
  in->callback([&words] { words.imports = true; });
}

int run(const InterchangeWords& words) {
  words.exports ? run_export(words) : run_import(words);
  return 0;
}

Names parse_names(const std::string& text, const std::string& file) {
  const json parsed = json::parse(text, nullptr, false);
  if (!parsed.is_object()) refuse(file, "it is no JSON object");
  Names out;
  for (const auto& [own, entry] : parsed.items()) read_entry(own, entry, file, out);
  return out;
}

}  // namespace outboard::cli
