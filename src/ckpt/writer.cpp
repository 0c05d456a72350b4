// SPDX-License-Identifier: Apache-2.0
#include "ckpt/writer.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "ckpt/folder.hpp"
#include "ckpt/format.hpp"
#include "ckpt/save_plan.hpp"
#include "ckpt/state_file.hpp"
#include "core/on_threads.hpp"
#include "outboard/error.hpp"

namespace outboard::ckpt {
namespace {

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
    StateFile file(files_, join(folder_, manifest_.files[index].name), headers_[index]);
    for (const PlannedFile::Tensor& tensor : planned_[index].tensors) {
      StreamEntry& entry = manifest_.parameters[tensor.parameter].streams[tensor.stream];
      std::uint64_t bytes = 0;
      source_.read(tensor.parameter, tensor.stream, [&](std::span<const std::byte> piece) {
        bytes += piece.size();
        write(piece, file);
      });
      if (bytes != manifest_.parameters[tensor.parameter].elems * sizeof(float)) {
        throw Error(ErrorCode::io_failure, "save(): a source gave " + std::to_string(bytes) +
                                               " bytes of '" +
                                               manifest_.parameters[tensor.parameter].name() + "'");
      }
      entry.checksum = file.end_tensor();
    }
    manifest_.files[index].checksum = file.finish();
  }

  void write(std::span<const std::byte> bytes, StateFile& file) const {
    while (!bytes.empty()) {
      if (failed_) throw Stopped();
      const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
      file.add(piece);
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

}  // namespace

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
