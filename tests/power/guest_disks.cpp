// SPDX-License-Identifier: Apache-2.0
#include "power/guest_disks.hpp"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace outboard::power_test {
namespace {

constexpr const char* kMountPoint = "/mnt";

void require(bool held, const std::string& what) {
  if (!held) throw std::runtime_error(what + ": " + std::strerror(errno));
}

/// An open file that closes itself.
class Handle {
 public:
  Handle(const std::string& path, int flags) : value_(::open(path.c_str(), flags | O_CLOEXEC)) {
    require(value_ >= 0, "open " + path);
  }
  ~Handle() { ::close(value_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  [[nodiscard]] int get() const noexcept { return value_; }

 private:
  int value_;
};

void mount_one(const char* type, const char* where) {
  (void)::mkdir(where, 0755);
  require(::mount(type, where, type, 0, nullptr) == 0, std::string("mount ") + where);
}

void load_modules() {
  std::vector<std::string> modules;
  for (const auto& entry : std::filesystem::directory_iterator("/modules")) {
    modules.push_back(entry.path().string());
  }
  std::ranges::sort(modules);
  for (const std::string& module : modules) {
    const Handle file(module, O_RDONLY);
    require(::syscall(SYS_finit_module, file.get(), "", 0) == 0 || errno == EEXIST,
            "load " + module);
  }
}

void set(const std::string& path, const char* value) {
  std::ofstream out(path);
  out << value;
  require(static_cast<bool>(out.flush()), "write " + path);
}

}  // namespace

void prepare_machine() {
  mount_one("proc", "/proc");
  mount_one("sysfs", "/sys");
  mount_one("devtmpfs", "/dev");
  mount_one("tmpfs", "/dev/shm");
  mount_one("tmpfs", "/tmp");
  (void)::mkdir(kMountPoint, 0755);
  load_modules();
  set("/proc/sys/vm/dirty_writeback_centisecs", "10");
  set("/proc/sys/vm/dirty_expire_centisecs", "20");
}

void send_small_writes(const std::string& disk) {
  set("/sys/block/" + disk + "/queue/max_sectors_kb", "32");
}

Mounted::Mounted(const std::string& device, const std::string& type) {
  require(::mount(device.c_str(), kMountPoint, type.c_str(), 0, nullptr) == 0, "mount " + device);
}

Mounted::~Mounted() {
  if (::umount(kMountPoint) != 0) std::printf("cannot unmount: %s\n", std::strerror(errno));
}

DiskPart::DiskPart(const std::string& disk, std::uint64_t offset, std::uint64_t bytes) {
  const Handle control("/dev/loop-control", O_RDWR);
  const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
  require(number >= 0, "find a free loop device");
  device_ = "/dev/loop" + std::to_string(number);
  const Handle backing(disk, O_RDWR);
  loop_config config = {};
  config.fd = static_cast<__u32>(backing.get());
  config.info.lo_offset = offset;
  config.info.lo_sizelimit = bytes;
  handle_ = ::open(device_.c_str(), O_RDWR | O_CLOEXEC);
  require(handle_ >= 0, "open " + device_);
  if (::ioctl(handle_, LOOP_CONFIGURE, &config) == 0) return;
  const int error = errno;
  ::close(handle_);
  errno = error;
  require(false, "set up " + device_);
}

DiskPart::~DiskPart() {
  (void)::ioctl(handle_, LOOP_CLR_FD);
  ::close(handle_);
}

void write_mark(const std::string& disk, const std::string& text) {
  alignas(4096) static std::array<char, 512> sector;
  sector.fill('\0');
  std::copy_n(text.begin(), std::min(text.size(), sector.size()), sector.begin());
  const Handle file(disk, O_WRONLY | O_DIRECT);
  require(
      ::pwrite(file.get(), sector.data(), sector.size(), 0) == static_cast<ssize_t>(sector.size()),
      "write to " + disk);
}

std::string read_table(const std::string& disk) {
  std::string text(std::size_t{64} << 10, '\0');
  const Handle file(disk, O_RDONLY);
  const ssize_t done = ::pread(file.get(), text.data(), text.size(), 0);
  require(done > 0, "read " + disk);
  text.resize(static_cast<std::size_t>(done));
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

}  // namespace outboard::power_test
