// SPDX-License-Identifier: Apache-2.0
/// Disks of a virtual machine, for its first process. Each function throws std::runtime_error
/// naming the call and the system's reason.
#pragma once

#include <cstdint>
#include <string>

namespace outboard::power_test {

/// /proc, /sys, /dev and /tmp; then the kernel modules that lie in /modules, in the order of their
/// names; settings with which data goes to the disks soon without being synced too.
void prepare_machine();

/// From now on nothing larger than 32 KiB goes to a disk at once, so that more of it is under way.
void send_small_writes(const std::string& disk);

/// A file system, mounted at /mnt while this lives.
class Mounted {
 public:
  Mounted(const std::string& device, const std::string& type);
  ~Mounted();
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;
};

/// A part of a disk as a disk of its own while this lives.
class DiskPart {
 public:
  DiskPart(const std::string& disk, std::uint64_t offset, std::uint64_t bytes);
  ~DiskPart();
  DiskPart(const DiskPart&) = delete;
  DiskPart& operator=(const DiskPart&) = delete;
  [[nodiscard]] const std::string& device() const noexcept { return device_; }

 private:
  std::string device_;
  int handle_ = -1;
};

/// Writes up to 512 bytes to the start of a disk, past all caches of this machine.
void write_mark(const std::string& disk, const std::string& text);
/// The text at the start of a disk, up to its first zero.
[[nodiscard]] std::string read_table(const std::string& disk);

}  // namespace outboard::power_test
