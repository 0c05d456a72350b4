// SPDX-License-Identifier: Apache-2.0
#include "ckpt/writer.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "ckpt/checksum.hpp"
#include "ckpt/files.hpp"
#include "ckpt/folder.hpp"
#include "ckpt/format.hpp"
#include "ckpt/tensor_file.hpp"
#include "core/on_threads.hpp"
#include "core/round_up.hpp"
#include "outboard/error.hpp"

namespace outboard::ckpt {
namespace {

/// One file that is to be written.
struct PlannedFile {
  struct Tensor {
    std::size_t parameter = 0, stream = 0;
  };
  std::vector<Tensor> tensors;
  std::vector<TensorSpec> specs;
  std::uint64_t data_bytes = 0;
  std::uint64_t header_bytes = 0;  // upper bound
};

std::string file_name(std::size_t index) {
  std::string digits = std::to_string(index);
  digits.insert(0, 5 - std::min<std::size_t>(5, digits.size()), '0');
  return "state-" + digits + ".safetensors";
}

/// Parameter by parameter, all streams of one side by side. Sets each stream's file.
std::vector<PlannedFile> plan_files(SaveRequest& request) {
  std::vector<PlannedFile> files;
  for (std::size_t i = 0; i < request.manifest.parameters.size(); ++i) {
    ParameterEntry& parameter = request.manifest.parameters[i];
    for (std::size_t k = 0; k < parameter.streams.size(); ++k) {
      TensorSpec spec{tensor_name(parameter.streams[k].name, parameter.name()), parameter.elems};
      const std::uint64_t bytes = spec.elems * sizeof(float);
      const std::uint64_t entry = header_bytes_of(spec);
      const bool full = files.empty() || files.back().data_bytes + bytes > request.file_bytes ||
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

/// With headers made and sizes known. Checksums are 0 still, which is as long.
std::vector<std::string> describe_files(const std::vector<PlannedFile>& planned,
                                        Manifest& manifest) {
  require_utf8(manifest);
  std::vector<std::string> headers;
  manifest.files.clear();
  for (std::size_t i = 0; i < planned.size(); ++i) {
    headers.push_back(make_header(planned[i].specs));
    FileEntry& file = manifest.files.emplace_back();
    file.name = file_name(i);
    file.bytes = headers.back().size() + planned[i].data_bytes;
    file.header_checksum = checksum_of(headers.back());
  }
  return headers;
}

/// What is there of a path: the folder itself, or the one it would be made in.
std::string nearest_folder(FileSystem& files, const std::string& root) {
  const CallResult there = files.open(root);
  if (there.error == 0) {
    files.close(static_cast<int>(there.value));
    return root;
  }
  return parent_of(root);
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

/// Ends the writing of a file because of another one's failure; never leaves this file.
class Stopped final : public Error {
 public:
  Stopped() : Error(ErrorCode::io_failure, "another file could not be written") {}
};

/// Writes the planned files on several threads and notes their checksums.
class Writing {
 public:
  Writing(FileSystem& files, std::string folder, const std::vector<PlannedFile>& planned,
          const std::vector<std::string>& headers, Manifest& manifest, StateSource& source)
      : files_(files),
        folder_(std::move(folder)),
        planned_(planned),
        headers_(headers),
        manifest_(manifest),
        source_(source) {}

  /// @throws the first failure in time; that others stopped because of it is none.
  void run(std::size_t threads) {
    core::on_threads(threads, planned_.size(), [this](std::size_t i) {
      if (failed_) return;
      try {
        write(i);
      } catch (const Stopped&) {  // the cause is kept already
      } catch (...) {
        keep(std::current_exception());
      }
    });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void keep(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    failed_ = true;
  }

  void write(std::size_t index) {
    File file = File::create(files_, join(folder_, manifest_.files[index].name));
    Checksum whole;
    const auto header = std::as_bytes(std::span(headers_[index]));
    file.write(header);
    whole.add(header);
    for (const PlannedFile::Tensor& tensor : planned_[index].tensors) {
      StreamEntry& entry = manifest_.parameters[tensor.parameter].streams[tensor.stream];
      Checksum own;
      std::uint64_t bytes = 0;
      source_.read(tensor.parameter, tensor.stream, [&](std::span<const std::byte> piece) {
        bytes += piece.size();
        write(piece, file, whole, own);
      });
      if (bytes != manifest_.parameters[tensor.parameter].elems * sizeof(float)) {
        throw Error(ErrorCode::io_failure, "save(): a source gave " + std::to_string(bytes) +
                                               " bytes of '" +
                                               manifest_.parameters[tensor.parameter].name() + "'");
      }
      entry.checksum = own.value();
    }
    manifest_.files[index].checksum = whole.value();
    file.sync();
    file.close();
  }

  /// Piece by piece, so that what is summed is in the cache when it is written.
  void write(std::span<const std::byte> bytes, File& file, Checksum& whole, Checksum& own) const {
    while (!bytes.empty()) {
      if (failed_) throw Stopped();
      const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
      whole.add(piece);
      own.add(piece);
      file.write(piece);
      bytes = bytes.subspan(piece.size());
    }
  }

  FileSystem& files_;
  std::string folder_;
  const std::vector<PlannedFile>& planned_;
  const std::vector<std::string>& headers_;
  Manifest& manifest_;
  StateSource& source_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};  // once there is one, so that the others stop amid their files
};

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

}  // namespace

std::uint64_t planned_bytes(const SaveRequest& request) {
  SaveRequest copy = request;
  describe_files(plan_files(copy), copy.manifest);
  return total_bytes(copy.manifest, checked_manifest(copy.manifest).size());
}

void require_space(FileSystem& files, const std::string& root, const SaveRequest& request) {
  SaveRequest copy = request;
  describe_files(plan_files(copy), copy.manifest);
  require_space(files, root, copy.manifest, checked_manifest(copy.manifest).size());
}

SavedCheckpoint save(FileSystem& files, const std::string& root, SaveRequest request,
                     StateSource& source) {
  const auto planned = plan_files(request);
  Manifest& manifest = request.manifest;
  const auto headers = describe_files(planned, manifest);
  const std::uint64_t manifest_bytes = checked_manifest(manifest).size();
  Publication publication(files, root);  // what killed saves left makes room
  require_space(files, root, manifest, manifest_bytes);
  SavedCheckpoint saved;
  const std::string folder = publication.begin();
  Writing(files, folder, planned, headers, manifest, source).run(request.threads);
  write_manifest_file(files, folder, checked_manifest(manifest));
  saved.folder = publication.publish();
  saved.bytes = total_bytes(manifest, manifest_bytes);
  saved.note = publication.keep_last(request.keep_last);
  return saved;
}

}  // namespace outboard::ckpt
