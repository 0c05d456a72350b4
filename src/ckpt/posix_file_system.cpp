// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "ckpt/file_system.hpp"

namespace outboard::ckpt {
namespace {

CallResult result(std::int64_t value) {
  return value < 0 ? CallResult{-1, errno} : CallResult{value, 0};
}

/// No single call takes more than this on any system.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

class PosixFileSystem final : public FileSystem {
 public:
  CallResult create(const std::string& path) override {
    return result(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  }
  CallResult open(const std::string& path) override {
    // A pipe of that name must not block.
    const int handle = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (handle < 0) return result(handle);
    struct stat info = {};
    int error = ::fstat(handle, &info) != 0 ? errno : 0;
    if (error == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) error = EINVAL;
    if (error == 0) return {handle, 0};
    ::close(handle);
    return {-1, error};
  }
  CallResult write(int handle, std::span<const std::byte> bytes) override {
    return result(::write(handle, bytes.data(), std::min(bytes.size(), kMostBytes)));
  }
  CallResult read(int handle, std::span<std::byte> bytes, std::uint64_t offset) override {
    return result(::pread(handle, bytes.data(), std::min(bytes.size(), kMostBytes),
                          static_cast<off_t>(offset)));
  }
  CallResult size(int handle) override {
    struct stat info = {};
    if (::fstat(handle, &info) != 0) return result(-1);
    if (!S_ISREG(info.st_mode)) return {-1, EISDIR};
    return {info.st_size, 0};
  }
  CallResult sync(int handle) override { return result(::fsync(handle)); }
  CallResult lock(int handle) override { return result(::flock(handle, LOCK_EX | LOCK_NB)); }
  CallResult close(int handle) override { return result(::close(handle)); }

  CallResult make_folder(const std::string& path) override {
    return result(::mkdir(path.c_str(), 0777));
  }
  CallResult rename(const std::string& from, const std::string& to) override {
    return result(std::rename(from.c_str(), to.c_str()));
  }
  CallResult remove_file(const std::string& path) override {
    return result(::unlink(path.c_str()));
  }
  CallResult remove_folder(const std::string& path) override {
    return result(::rmdir(path.c_str()));
  }
  CallResult list(const std::string& path, std::vector<std::string>& names) override {
    names.clear();
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
    if (!folder) return result(-1);
    errno = 0;
    while (const dirent* entry = ::readdir(folder.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    return errno != 0 ? result(-1) : CallResult{static_cast<std::int64_t>(names.size()), 0};
  }
  CallResult free_bytes(const std::string& path) override {
    struct statvfs info = {};
    if (::statvfs(path.c_str(), &info) != 0) return result(-1);
    const double bytes = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
    if (bytes > 0x1p62) return {INT64_MAX, 0};
    return {static_cast<std::int64_t>(info.f_bavail * info.f_frsize), 0};
  }
  CallResult largest_file_bytes() override {
    struct rlimit limit = {};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return result(-1);
    return {static_cast<std::int64_t>(
                std::min<std::uint64_t>(limit.rlim_cur, std::uint64_t{INT64_MAX})),
            0};
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static PosixFileSystem instance;
  return instance;
}

}  // namespace outboard::ckpt
