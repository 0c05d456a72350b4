// SPDX-License-Identifier: Apache-2.0
#include "ckpt/piecewise_save.hpp"

#include <utility>

namespace outboard::ckpt {

PiecewiseSave::PiecewiseSave(FileSystem& files, const std::string& root, SaveRequest request)
    : files_(files), request_(std::move(request)), planned_(plan_files(request_)) {
  Manifest& manifest = request_.manifest;
  headers_ = describe_files(planned_, manifest);
  const std::uint64_t manifest_bytes = checked_manifest(manifest).size();
  bytes_ = total_bytes(manifest, manifest_bytes);
  publication_.emplace(files, root);  // what killed saves left makes room
  require_space(files, root, manifest, manifest_bytes);
  folder_ = publication_->begin();
}

void PiecewiseSave::write(std::span<const std::byte> bytes) {
  end_streams();  // empty ones before it
  file_->add(bytes);
  left_ -= bytes.size();
  end_streams();
}

SavedCheckpoint PiecewiseSave::finish(std::uint64_t digest) {
  end_streams();
  Manifest& manifest = request_.manifest;
  manifest.digest = digest;
  write_manifest_file(files_, folder_, checked_manifest(manifest));
  SavedCheckpoint saved;
  saved.folder = publication_->publish();
  saved.bytes = bytes_;
  saved.note = publication_->keep_last(request_.keep_last);
  publication_.reset();
  return saved;
}

/// Up to the next stream that has bytes to come.
void PiecewiseSave::end_streams() {
  while (index_ < planned_.size()) {
    if (!file_) begin_file();
    const auto& tensors = planned_[index_].tensors;
    while (tensor_ < tensors.size() && left_ == 0) {
      const PlannedFile::Tensor& done = tensors[tensor_++];
      request_.manifest.parameters[done.parameter].streams[done.stream].checksum =
          file_->end_tensor();
      if (tensor_ < tensors.size()) left_ = planned_[index_].specs[tensor_].elems * sizeof(float);
    }
    if (tensor_ < tensors.size()) return;
    request_.manifest.files[index_++].checksum = file_->finish();
    file_.reset();
  }
}

void PiecewiseSave::begin_file() {
  file_.emplace(files_, join(folder_, request_.manifest.files[index_].name), headers_[index_]);
  tensor_ = 0;
  left_ = planned_[index_].specs.front().elems * sizeof(float);
}

}  // namespace outboard::ckpt
