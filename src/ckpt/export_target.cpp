// SPDX-License-Identifier: Apache-2.0
#include "ckpt/export_target.hpp"

#include <cerrno>
#include <utility>

#include "ckpt/folder.hpp"
#include "outboard/error.hpp"

namespace outboard::ckpt {
namespace {

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

void require_none(FileSystem& files, const std::string& path, const std::string& what) {
  const CallResult opened = files.open(path);
  if (opened.error == ENOENT) return;
  if (opened.error == 0) files.close(static_cast<int>(opened.value));
  // Whatever else it is: what cannot be looked at is said to be that.
  if (opened.error != 0) (void)File::open(files, path);
  throw Error(ErrorCode::io_failure, "'" + path + "' is there already; " + what);
}

}  // namespace

ExportTarget::ExportTarget(FileSystem& files, std::string path, std::uint64_t bytes)
    : files_(files), path_(without_slashes(std::move(path))), place_(path_ + ".exporting") {
  require_none(files_, path_, "name what is not, or remove it: nothing is written over");
  require_none(files_, place_, "another export is under way there, or was killed: remove it then");
  const std::uint64_t free = free_bytes(files_, parent_of(path_));
  if (bytes <= free) return;
  throw Error(ErrorCode::no_space, "'" + path_ + "' needs " + std::to_string(bytes) +
                                       " bytes and " + std::to_string(free) +
                                       " are free there; free some, or name another place. "
                                       "Nothing was written");
}

ExportTarget::~ExportTarget() {
  if (!made_) return;
  try {
    remove_tree(files_, place_);
  } catch (const Error&) {  // the next export there names what is left
  }
}

void ExportTarget::make_folder() {
  folder_ = true;
  if (!ckpt::make_folder(files_, place_)) {
    throw Error(ErrorCode::io_failure, "'" + place_ + "' is there already; another export made it");
  }
  made_ = true;
}

void ExportTarget::publish() {
  if (folder_) sync_folder(files_, place_);
  rename(files_, place_, path_);
  try {
    sync_folder(files_, parent_of(path_));
  } catch (const Error& failure) {
    take_back(failure);
  }
  made_ = false;
}

/// A name that may be lost with the power is not to be seen until then either.
void ExportTarget::take_back(const Error& failure) {
  try {
    rename(files_, path_, place_);
  } catch (const Error& again) {
    made_ = false;
    throw Error(failure.code(), std::string(failure.what()) + ". '" + path_ +
                                    "' is whole and may be lost with the power; it could not be "
                                    "taken back: " +
                                    again.what());
  }
  throw failure;
}

}  // namespace outboard::ckpt
