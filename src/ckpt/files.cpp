// SPDX-License-Identifier: Apache-2.0
#include "ckpt/files.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "outboard/error.hpp"

namespace outboard::ckpt {
namespace {

std::string remedy(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space there or save elsewhere, then save again";
    case EFBIG:
      return "; raise the limit on file sizes (ulimit -f) or lower SaveOptions::file_bytes";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; give this user the right to it, or name another folder";
    case EMFILE:
    case ENFILE:
      return "; all files of a checkpoint are open while it is read: raise the limit on open files "
             "(ulimit -n)";
    case EIO:
      return "; the medium or the connection to it fails: look into the system's log, and use "
             "another one";
    default:
      return "";
  }
}

[[noreturn]] void fail(const std::string& what, const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw Error(full ? ErrorCode::no_space : ErrorCode::io_failure,
              "cannot " + what + " '" + path + "': " + std::generic_category().message(error) +
                  " (errno " + std::to_string(error) + ")" + remedy(error));
}

/// Makes a call until no signal interrupts it.
template <class Call>
CallResult again(Call call) {
  CallResult result = call();
  while (result.error == EINTR) result = call();
  return result;
}

template <class Call>
std::int64_t must(const char* what, const std::string& path, Call call) {
  const CallResult result = again(call);
  if (result.error != 0) fail(what, path, result.error);
  return result.value;
}

}  // namespace

File File::create(FileSystem& files, const std::string& path) {
  return {files, path, static_cast<int>(must("create", path, [&] { return files.create(path); }))};
}

File File::open(FileSystem& files, const std::string& path) {
  return {files, path, static_cast<int>(must("open", path, [&] { return files.open(path); }))};
}

File::File(File&& other) noexcept
    : files_(other.files_),
      path_(std::move(other.path_)),
      handle_(std::exchange(other.handle_, -1)),
      written_(other.written_) {}

File::~File() {
  if (handle_ >= 0) files_->close(handle_);
}

void File::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    CallResult result = again([&] { return files_->write(handle_, bytes); });
    if (result.error == 0 && result.value == 0) result.error = ENOSPC;
    if (result.error != 0) {
      fail("write " + std::to_string(bytes.size()) + " bytes behind the first " +
               std::to_string(written_) + " of",
           path_, result.error);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(result.value));
    written_ += static_cast<std::uint64_t>(result.value);
  }
}

void File::read(std::span<std::byte> bytes, std::uint64_t offset) const {
  const std::uint64_t end = offset + bytes.size();
  while (!bytes.empty()) {
    const auto count =
        must("read from", path_, [&] { return files_->read(handle_, bytes, offset); });
    if (count == 0) {
      throw Error(ErrorCode::bad_checkpoint, "'" + path_ + "' ends at byte " +
                                                 std::to_string(offset) + " and " +
                                                 std::to_string(end) + " are needed");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

std::uint64_t File::size() const {
  return static_cast<std::uint64_t>(
      must("take the size of", path_, [&] { return files_->size(handle_); }));
}

void File::sync() {
  must("sync", path_, [&] { return files_->sync(handle_); });
}

bool File::try_lock() {
  const CallResult result = again([&] { return files_->lock(handle_); });
  if (result.error == 0) return true;
  if (result.error == ENOLCK || result.error == EOPNOTSUPP || result.error == ENOSYS) return true;
  if (result.error == EWOULDBLOCK) return false;
  fail("lock", path_, result.error);
}

void File::close() {
  const CallResult result = files_->close(std::exchange(handle_, -1));
  if (result.error != 0 && result.error != EINTR) fail("close", path_, result.error);
}

std::string join(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (!path.empty() && path.back() != '/') path += '/';
  return path += name;
}

bool make_folder(FileSystem& files, const std::string& path) {
  const CallResult result = again([&] { return files.make_folder(path); });
  if (result.error == EEXIST) return false;
  if (result.error != 0) fail("make the folder", path, result.error);
  return true;
}

void rename(FileSystem& files, const std::string& from, const std::string& to) {
  must("rename", from, [&] { return files.rename(from, to); });
}

std::vector<std::string> list(FileSystem& files, const std::string& path, bool may_lack) {
  std::vector<std::string> names;
  const CallResult result = again([&] { return files.list(path, names); });
  if (result.error == ENOENT && may_lack) return {};
  if (result.error != 0) fail("list the folder", path, result.error);
  std::ranges::sort(names);
  return names;
}

void sync_folder(FileSystem& files, const std::string& path) {
  File::open(files, path).sync();
}

/// A link is removed, never what it leads to.
void remove_tree(FileSystem& files, const std::string& path) {
  const CallResult no_folder = again([&] { return files.remove_file(path); });
  if (no_folder.error == 0 || no_folder.error == ENOENT) return;
  if (no_folder.error != EISDIR && no_folder.error != EPERM) fail("remove", path, no_folder.error);
  for (const std::string& name : list(files, path, true)) {
    remove_tree(files, join(path, name));
  }
  const CallResult result = again([&] { return files.remove_folder(path); });
  if (result.error != 0 && result.error != ENOENT) fail("remove the folder", path, result.error);
}

std::uint64_t free_bytes(FileSystem& files, const std::string& path) {
  return static_cast<std::uint64_t>(
      must("ask for the free space of", path, [&] { return files.free_bytes(path); }));
}

std::string read_text(FileSystem& files, const std::string& path, std::uint64_t most) {
  const File file = File::open(files, path);
  const std::uint64_t size = file.size();
  if (size > most) {
    throw Error(ErrorCode::bad_checkpoint, "'" + path + "' has " + std::to_string(size) +
                                               " bytes; at most " + std::to_string(most) +
                                               " are expected, so it is damaged or no part of a "
                                               "checkpoint");
  }
  std::string text(size, '\0');
  file.read(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

}  // namespace outboard::ckpt
