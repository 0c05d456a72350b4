// SPDX-License-Identifier: Apache-2.0
// What can be said of a checkpoint without an engine.
#include "ckpt/folder.hpp"
#include "ckpt/reader.hpp"
#include "optim/describe.hpp"
#include "outboard/checkpoint.hpp"

namespace outboard {

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
