// SPDX-License-Identifier: Apache-2.0
#include "ckpt/reader.hpp"

#include <algorithm>

#include "ckpt/folder.hpp"
#include "ckpt/format.hpp"
#include "ckpt/header_parts.hpp"
#include "ckpt/tensor_file.hpp"
#include "outboard/error.hpp"

namespace outboard::ckpt {
namespace {

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw Error(ErrorCode::bad_checkpoint,
              "'" + file + "' " + why +
                  "; the file is damaged: load another checkpoint, or restore it from a copy");
}

TensorHeader checked_header(const File& file, const FileEntry& entry) {
  const std::string& path = file.path();
  const std::uint64_t size = file.size();
  if (size != entry.bytes) {
    refuse(path, "is " + std::to_string(size) + " bytes long and was saved with " +
                     std::to_string(entry.bytes));
  }
  const std::string header = read_header(file, size);
  if (checksum_of(header) != entry.header_checksum) {
    refuse(path, "has a header other than the one that was saved: its checksum differs");
  }
  return parse_header(header, size, path);
}

}  // namespace

Checkpoint Checkpoint::open(FileSystem& files, const std::string& path) {
  std::string folder = find_checkpoint(files, path);
  for (;;) {
    try {
      return open_folder(files, folder);
    } catch (const Error&) {
      std::string newest = find_checkpoint(files, path);
      if (newest == folder) throw;
      folder = std::move(newest);  // a saver has put it in the place of that one meanwhile
    }
  }
}

Checkpoint Checkpoint::open_folder(FileSystem& files, std::string folder) {
  const std::string file = join(folder, kManifestName);
  Manifest manifest = read_manifest(read_text(files, file, kMaxManifestBytes), file);
  Checkpoint checkpoint(files, std::move(folder), std::move(manifest));
  checkpoint.read_headers();
  return checkpoint;
}

void Checkpoint::read_headers() {
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> wanted(manifest_.files.size());
  for (std::size_t i = 0; i < manifest_.parameters.size(); ++i) {
    const auto& streams = manifest_.parameters[i].streams;
    offsets_.emplace_back(streams.size());
    for (std::size_t k = 0; k < streams.size(); ++k) wanted[streams[k].file].emplace_back(i, k);
  }
  for (std::size_t f = 0; f < wanted.size(); ++f) {
    const File& file = opened_.emplace_back(File::open(*files_, path_of(f)));
    const TensorHeader header = checked_header(file, manifest_.files[f]);
    for (const auto& [parameter, stream] : wanted[f]) {
      const ParameterEntry& entry = manifest_.parameters[parameter];
      const std::string name = tensor_name(entry.streams[stream].name, entry.name());
      const auto found = header.tensors.find(name);
      if (found == header.tensors.end()) refuse(path_of(f), "has no tensor '" + name + "'");
      if (found->second.elems != entry.elems) {
        refuse(path_of(f), "has a tensor '" + name + "' of " + std::to_string(found->second.elems) +
                               " elements where its manifest "
                               "has " +
                               std::to_string(entry.elems));
      }
      offsets_[parameter][stream] = found->second.offset;
    }
    if (header.tensors.size() != wanted[f].size()) {
      refuse(path_of(f), "has " + std::to_string(header.tensors.size()) +
                             " tensors where its manifest has " + std::to_string(wanted[f].size()));
    }
  }
}

Checkpoint::Stream::Stream(const Checkpoint& checkpoint, std::size_t parameter, std::size_t stream)
    : checkpoint_(checkpoint),
      parameter_(parameter),
      stream_(stream),
      file_(checkpoint.opened_[checkpoint.manifest_.parameters[parameter].streams[stream].file]),
      offset_(checkpoint.offsets_[parameter][stream]) {}

/// Piece by piece, so that what was read is in the cache when it is summed.
void Checkpoint::Stream::read(std::span<std::byte> out) {
  while (!out.empty()) {
    const auto piece = out.first(std::min(out.size(), kPieceBytes));
    file_.read(piece, offset_);
    checksum_.add(piece);
    offset_ += piece.size();
    out = out.subspan(piece.size());
  }
}

void Checkpoint::Stream::finish() const {
  const ParameterEntry& parameter = checkpoint_.manifest_.parameters[parameter_];
  const StreamEntry& stream = parameter.streams[stream_];
  if (checksum_.value() == stream.checksum) return;
  refuse(file_.path(), "has a tensor '" + tensor_name(stream.name, parameter.name()) +
                           "' other than the one that was saved: its checksum differs");
}

void Checkpoint::read_range(std::size_t parameter, std::size_t stream, std::uint64_t first_element,
                            std::span<float> out) const {
  const ParameterEntry& entry = manifest_.parameters[parameter];
  if (first_element > entry.elems || out.size() > entry.elems - first_element) {
    throw Error(ErrorCode::invalid_argument,
                "elements " + std::to_string(first_element) + " to " +
                    std::to_string(first_element + out.size()) + " of '" + entry.name() +
                    "' are asked for, which has " + std::to_string(entry.elems));
  }
  const File& file = opened_[entry.streams[stream].file];
  file.read(std::as_writable_bytes(out),
            offsets_[parameter][stream] + first_element * sizeof(float));
}

void Checkpoint::verify_file(std::size_t index) const {
  const FileEntry& entry = manifest_.files[index];
  const File& file = opened_[index];
  if (file.size() != entry.bytes) refuse(file.path(), "changed its size");
  Checksum checksum;
  std::vector<std::byte> buffer(kPieceBytes);
  for (std::uint64_t offset = 0; offset < entry.bytes; offset += buffer.size()) {
    const std::uint64_t left = entry.bytes - offset;
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(left, buffer.size()));
    file.read(piece, offset);
    checksum.add(piece);
  }
  if (checksum.value() != entry.checksum) {
    refuse(file.path(), "does not have the checksum that it was saved with");
  }
}

void Checkpoint::verify() const {
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) verify_file(i);
}

}  // namespace outboard::ckpt
