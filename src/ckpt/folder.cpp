// SPDX-License-Identifier: Apache-2.0
#include "ckpt/folder.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "ckpt/format.hpp"
#include "ckpt/padded.hpp"
#include "outboard/error.hpp"

namespace outboard::ckpt {
namespace {

constexpr std::size_t kDigits = 8;
constexpr std::size_t kMostDigits = 18;

}  // namespace

std::string parent_of(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string saved_name(std::uint64_t number) {
  return std::string(kSavedPrefix) + padded(number, kDigits);
}

std::optional<std::uint64_t> saved_number(std::string_view name) {
  if (!name.starts_with(kSavedPrefix)) return {};
  const std::string_view digits = name.substr(kSavedPrefix.size());
  std::uint64_t number = 0;
  if (digits.size() < kDigits || digits.size() > kMostDigits) return {};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return {};
  if (saved_name(number) != name) return {};
  return number;
}

std::vector<std::uint64_t> saved_numbers(FileSystem& files, const std::string& root) {
  std::vector<std::uint64_t> numbers;
  for (const std::string& name : list(files, root, true)) {
    if (const auto number = saved_number(name)) numbers.push_back(*number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

std::string find_checkpoint(FileSystem& files, const std::string& path) {
  const std::vector<std::string> names = list(files, path);
  if (std::ranges::find(names, kManifestName) != names.end()) return path;
  const auto numbers = saved_numbers(files, path);
  if (!numbers.empty()) return join(path, saved_name(numbers.back()));
  throw Error(ErrorCode::io_failure,
              "there is no checkpoint in '" + path + "': it holds " + std::to_string(names.size()) +
                  " names, and neither '" + std::string(kManifestName) + "' nor a folder '" +
                  saved_name(1) +
                  "' or the like is among them; give the folder that was saved into, "
                  "or one of those in it");
}

Publication::Publication(FileSystem& files, const std::string& root) : files_(files), root_(root) {
  sync_parent(make_folder(files_, root_));
  lock_.emplace(File::open(files_, root_));
  if (!lock_->try_lock()) {
    throw Error(ErrorCode::io_failure, "'" + root_ +
                                           "' is being saved into by another process or engine; "
                                           "give each its own folder, or wait for it");
  }
  remove_leftovers();
  const auto names = list(files_, root_);
  if (std::ranges::find(names, kManifestName) != names.end()) {
    throw Error(ErrorCode::io_failure, "'" + root_ +
                                           "' is a checkpoint itself, in which load() would look "
                                           "for no other; save into the folder that it is in");
  }
  const auto numbers = saved_numbers(files_, root_);
  number_ = numbers.empty() ? 1 : numbers.back() + 1;
  if (saved_number(saved_name(number_))) return;
  throw Error(ErrorCode::io_failure, "'" + root_ + "' holds '" + saved_name(number_ - 1) +
                                         "', after which no number is left; rename that folder");
}

Publication::~Publication() {
  if (saving_.empty()) return;
  try {
    remove_tree(files_, saving_);
  } catch (const Error&) {  // what fails here is removed by the next save
  }
}

/// One that is there may have been made a moment ago, by a save that was killed: its name may be
/// lost yet. Where the folder around it may not be opened, it was somebody else's to make.
void Publication::sync_parent(bool made) {
  std::optional<File> parent;
  try {
    parent.emplace(File::open(files_, parent_of(root_)));
  } catch (const Error&) {
    if (made) throw;
    return;
  }
  parent->sync();
}

/// They cost nothing but space: none of them keeps a checkpoint from being saved.
void Publication::remove_leftovers() {
  for (const std::string& name : list(files_, root_)) {
    if (!name.starts_with(kSavingPrefix) && !name.starts_with(kRemovingPrefix)) continue;
    try {
      remove_tree(files_, join(root_, name));
    } catch (const Error& failure) {
      left_over_ = failure.what();
    }
  }
}

std::string Publication::begin() {
  std::string folder = join(root_, std::string(kSavingPrefix) + padded(number_, kDigits));
  remove_tree(files_, folder);
  make_folder(files_, folder);
  return saving_ = folder;
}

std::string Publication::publish() {
  sync_folder(files_, saving_);
  std::string folder = join(root_, saved_name(number_));
  rename(files_, saving_, folder);
  try {
    lock_->sync();
  } catch (const Error& failure) {
    take_back(folder, failure);
  }
  saving_.clear();
  return folder;
}

/// A name that may be lost with the power is not to be seen until then either.
void Publication::take_back(const std::string& folder, const Error& failure) {
  try {
    rename(files_, folder, saving_);
  } catch (const Error& again) {
    throw Error(failure.code(), std::string(failure.what()) + ". The new checkpoint '" + folder +
                                    "' is complete and may be lost with the power; it could not "
                                    "be taken back: " +
                                    again.what());
  }
  throw failure;
}

std::string Publication::keep_last(std::uint32_t count) noexcept {
  if (count == 0) return left_over_;
  try {
    auto numbers = saved_numbers(files_, root_);
    numbers.resize(numbers.size() - std::min<std::size_t>(count, numbers.size()));
    for (const std::uint64_t number : numbers) {
      const std::string gone = join(root_, std::string(kRemovingPrefix) + padded(number, kDigits));
      rename(files_, join(root_, saved_name(number)), gone);
      remove_tree(files_, gone);
    }
    return left_over_;
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

}  // namespace outboard::ckpt
