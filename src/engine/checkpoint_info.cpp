// SPDX-License-Identifier: Apache-2.0
// What can be said of a checkpoint without an engine.
#include <sstream>

#include "ckpt/folder.hpp"
#include "ckpt/reader.hpp"
#include "optim/describe.hpp"
#include "outboard/checkpoint.hpp"

namespace outboard {
namespace {

std::string shown(double value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}

std::map<std::string, std::string> settings_of(const ckpt::Manifest& manifest) {
  const optim::LossScaler::State& scale = manifest.loss_scale;
  std::map<std::string, std::string> settings = {
      {"accumulation", std::to_string(manifest.accumulation)},
      {"loss_scale.dynamic", manifest.dynamic_loss_scale ? "true" : "false"},
      {"loss_scale.clean_steps", std::to_string(scale.clean_steps)},
      {"loss_scale.overflows_in_a_row", std::to_string(scale.overflows_in_a_row)},
      {"loss_scale.scale_before_row", shown(scale.scale_before_row)},
      {"loss_scale.halvings_in_row", std::to_string(scale.halvings_in_row)}};
  if (manifest.imported) settings["imported"] = "true";
  if (!manifest.settings) return settings;
  settings["max_grad_norm"] = shown(manifest.settings->max_grad_norm);
  settings["accumulate"] = manifest.settings->accumulate == Accumulate::host ? "host" : "trainer";
  if (!manifest.dynamic_loss_scale) return settings;
  settings["loss_scale.growth_interval"] = std::to_string(manifest.settings->growth_interval);
  settings["loss_scale.min_scale"] = shown(manifest.settings->min_scale);
  settings["loss_scale.max_scale"] = shown(manifest.settings->max_scale);
  return settings;
}

}  // namespace

std::vector<std::string> list_checkpoints(const std::string& folder) {
  ckpt::FileSystem& files = ckpt::posix_file_system();
  (void)ckpt::list(files, folder);  // that it is there
  std::vector<std::string> found;
  for (const std::uint64_t number : ckpt::saved_numbers(files, folder)) {
    found.push_back(ckpt::join(folder, ckpt::saved_name(number)));
  }
  return found;
}

CheckpointInfo inspect_checkpoint(const std::string& folder) {
  const auto checkpoint = ckpt::Checkpoint::open(ckpt::posix_file_system(), folder);
  const ckpt::Manifest& manifest = checkpoint.manifest();
  CheckpointInfo info;
  info.folder = checkpoint.folder();
  info.written_by = manifest.written_by;
  for (const ckpt::FileEntry& file : manifest.files) info.bytes += file.bytes;
  info.steps = manifest.counters.steps;
  info.steps_applied = manifest.counters.applied;
  info.steps_skipped = manifest.counters.skipped;
  info.steps_partial = manifest.counters.partial;
  info.settings = settings_of(manifest);
  info.digest = manifest.digest;
  info.loss_scale = manifest.loss_scale.scale;
  for (const optim::Group& group : manifest.groups) info.groups.push_back(optim::describe(group));
  for (const ckpt::ParameterEntry& entry : manifest.parameters) {
    CheckpointParameter& parameter = info.parameters.emplace_back();
    parameter = {entry.name(), entry.dtype, entry.elems, entry.step_count, entry.group, {}};
    for (const ckpt::StreamEntry& stream : entry.streams) {
      parameter.streams[stream.name] = stream.checksum;
    }
  }
  info.entries = manifest.entries;
  return info;
}

void verify_checkpoint(const std::string& folder) {
  ckpt::Checkpoint::open(ckpt::posix_file_system(), folder).verify();
}

}  // namespace outboard
