// SPDX-License-Identifier: Apache-2.0
#include "ckpt/save_plan.hpp"

#include <algorithm>
#include <utility>

#include "ckpt/checksum.hpp"
#include "ckpt/files.hpp"
#include "ckpt/folder.hpp"
#include "ckpt/format.hpp"
#include "ckpt/padded.hpp"
#include "core/round_up.hpp"
#include "outboard/error.hpp"

namespace outboard::ckpt {
namespace {

/// What is there of a path: the folder itself, or the one it would be made in.
std::string nearest_folder(FileSystem& files, const std::string& root) {
  const CallResult there = files.open(root);
  if (there.error == 0) {
    files.close(static_cast<int>(there.value));
    return root;
  }
  return parent_of(root);
}

std::vector<PlannedFile> plan_files(SaveRequest& request, std::uint64_t file_bytes) {
  std::vector<PlannedFile> files;
  for (std::size_t i = 0; i < request.manifest.parameters.size(); ++i) {
    ParameterEntry& parameter = request.manifest.parameters[i];
    for (std::size_t k = 0; k < parameter.streams.size(); ++k) {
      TensorSpec spec{tensor_name(parameter.streams[k].name, parameter.name()), parameter.elems};
      const std::uint64_t bytes = spec.elems * sizeof(float);
      const std::uint64_t entry = header_bytes_of(spec);
      const bool full = files.empty() || files.back().data_bytes + bytes > file_bytes ||
                        files.back().header_bytes + entry > kMaxHeaderBytes / 2;
      if (files.empty() || (full && files.back().data_bytes > 0)) files.emplace_back();
      PlannedFile& file = files.back();
      file.tensors.push_back({i, k});
      file.specs.push_back(std::move(spec));
      file.data_bytes += bytes;
      file.header_bytes += entry;
      parameter.streams[k].file = static_cast<std::uint32_t>(files.size() - 1);
    }
  }
  return files;
}

}  // namespace

std::vector<PlannedFile> plan_files(SaveRequest& request) {
  std::uint64_t file_bytes = request.file_bytes;
  for (;;) {
    std::vector<PlannedFile> files = plan_files(request, file_bytes);
    if (files.size() <= kMaxSavedFiles) return files;
    file_bytes *= 2;
  }
}

std::vector<std::string> describe_files(const std::vector<PlannedFile>& planned,
                                        Manifest& manifest) {
  require_utf8(manifest);
  std::vector<std::string> headers;
  manifest.files.clear();
  for (std::size_t i = 0; i < planned.size(); ++i) {
    headers.push_back(make_header(planned[i].specs));
    FileEntry& file = manifest.files.emplace_back();
    file.name = "state-" + padded(i, 5) + ".safetensors";
    file.bytes = headers.back().size() + planned[i].data_bytes;
    file.header_checksum = checksum_of(headers.back());
  }
  return headers;
}

void require_space(FileSystem& files, const std::string& root, const Manifest& manifest,
                   std::uint64_t manifest_bytes) {
  constexpr std::uint64_t kBlock = 4096;
  std::uint64_t needed = core::round_up(manifest_bytes, kBlock) + 16 * kBlock;  // and the folders
  std::uint64_t largest = manifest_bytes;
  for (const FileEntry& file : manifest.files) {
    needed += core::round_up(file.bytes, kBlock);
    largest = std::max(largest, file.bytes);
  }
  const std::uint64_t free = free_bytes(files, nearest_folder(files, root));
  if (needed > free) {
    throw Error(ErrorCode::no_space,
                "a checkpoint in '" + root + "' needs " + std::to_string(needed) + " bytes and " +
                    std::to_string(free) + " are free there: " + std::to_string(needed - free) +
                    " bytes short; free some, keep fewer checkpoints, or save "
                    "elsewhere. Nothing was written");
  }
  const CallResult limit = files.largest_file_bytes();
  if (limit.error == 0 && static_cast<std::uint64_t>(limit.value) < largest) {
    throw Error(ErrorCode::no_space,
                "a checkpoint in '" + root + "' needs a file of " + std::to_string(largest) +
                    " bytes and this process may write files of at most " +
                    std::to_string(limit.value) +
                    " (ulimit -f); raise that limit or lower SaveOptions::file_bytes. Nothing was "
                    "written");
  }
}

void write_manifest_file(FileSystem& files, const std::string& folder, const std::string& text) {
  File file = File::create(files, join(folder, kManifestName));
  file.write(std::as_bytes(std::span(text)));
  file.sync();
  file.close();
}

std::string checked_manifest(const Manifest& manifest) {
  std::string text = write_manifest(manifest);
  if (text.size() <= kMaxManifestBytes) return text;
  throw Error(ErrorCode::unsupported, "a checkpoint's manifest would have " +
                                          std::to_string(text.size()) + " bytes; at most " +
                                          std::to_string(kMaxManifestBytes) +
                                          " are read: keep less in SaveOptions::entries");
}

std::uint64_t total_bytes(const Manifest& manifest, std::uint64_t manifest_bytes) {
  std::uint64_t bytes = manifest_bytes;
  for (const FileEntry& file : manifest.files) bytes += file.bytes;
  return bytes;
}

std::uint64_t planned_bytes(const SaveRequest& request) {
  SaveRequest copy = request;
  (void)describe_files(plan_files(copy), copy.manifest);
  return total_bytes(copy.manifest, checked_manifest(copy.manifest).size());
}

void require_space(FileSystem& files, const std::string& root, const SaveRequest& request) {
  SaveRequest copy = request;
  (void)describe_files(plan_files(copy), copy.manifest);
  require_space(files, root, copy.manifest, checked_manifest(copy.manifest).size());
}

}  // namespace outboard::ckpt
