// SPDX-License-Identifier: Apache-2.0
#include "device/sim/device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>
#include <string>

#include "outboard/error.hpp"

namespace outboard::sim {
namespace {

constexpr std::size_t kPage = 4096;
// From this size on a released range gives its pages back to the host.
constexpr std::size_t kReturnPagesFrom = std::size_t{1} << 20;

std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

[[noreturn]] void refuse_map(const char* call, std::size_t bytes) {
  throw Error(ErrorCode::out_of_memory,
              std::string("software GPU: ") + call + " of " + std::to_string(bytes) + " bytes: " +
                  std::strerror(errno) + "; ask for less in sim::Options::memory_bytes");
}

void* host_pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): it was one
}

[[noreturn]] void refuse_range(const void* address, std::size_t bytes, const char* why) {
  std::ostringstream text;
  text << "device range of " << bytes << " bytes at " << address << ": " << why;
  throw Error(ErrorCode::invalid_argument, text.str());
}

}  // namespace

DeviceMemory::DeviceMemory(std::size_t limit_bytes, Kind kind)
    : limit_(limit_bytes / kAlignment * kAlignment), mapped_(rounded(limit_, kPage)), kind_(kind) {
  if (kind_ == Kind::host) return;  // each allocation by itself
  map();
  free_.emplace(0, limit_);
}

DeviceMemory::~DeviceMemory() {
  if (kind_ == Kind::host) {
    for (const auto& [address, bytes] : live_) std::free(host_pointer(address));
    return;
  }
  ::munmap(outer_, mapped_);
  ::munmap(inner_, mapped_);
}

void DeviceMemory::map() {
  const int file = ::memfd_create("outboard-device", MFD_CLOEXEC);
  if (file < 0) refuse_map("memfd_create", mapped_);
  const bool sized = ::ftruncate(file, static_cast<off_t>(mapped_)) == 0;
  const int flags = MAP_SHARED | MAP_NORESERVE;
  void* outer = MAP_FAILED;
  void* inner = MAP_FAILED;
  if (sized) outer = ::mmap(nullptr, mapped_, PROT_NONE, flags, file, 0);
  if (outer != MAP_FAILED) {
    inner = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, flags, file, 0);
  }
  const int error = errno;
  ::close(file);
  if (inner == MAP_FAILED) {
    if (outer != MAP_FAILED) ::munmap(outer, mapped_);
    errno = error;
    refuse_map("mapping device memory", mapped_);
  }
  outer_ = static_cast<std::byte*>(outer);
  inner_ = static_cast<std::byte*>(inner);
}

void* DeviceMemory::allocate_on_host(std::size_t bytes, std::size_t take) {
  void* const address = take > limit_ - used_ ? nullptr : std::aligned_alloc(kAlignment, take);
  if (address == nullptr) {
    throw Error(ErrorCode::out_of_memory,
                "host device: no memory for " + std::to_string(bytes) + " bytes beside the " +
                    std::to_string(used_) + " it holds of the machine's " + std::to_string(limit_) +
                    "; keep the state on the host (Placement::host)");
  }
  live_.emplace(reinterpret_cast<std::uintptr_t>(address), bytes);
  used_ += take;
  peak_ = std::max(peak_, used_);
  return address;
}

void* DeviceMemory::allocate(std::size_t bytes) {
  const std::scoped_lock guard(mutex_);
  const std::size_t take =
      bytes > limit_ ? bytes : rounded(std::max<std::size_t>(bytes, 1), kAlignment);
  if (kind_ == Kind::host) return allocate_on_host(bytes, take);
  const auto fit = std::find_if(free_.begin(), free_.end(),
                                [take](const auto& range) { return range.second >= take; });
  if (fit == free_.end()) {
    throw Error(ErrorCode::out_of_memory,
                "device memory: " + std::to_string(bytes) + " bytes asked, " +
                    std::to_string(used_) + " of " + std::to_string(limit_) +
                    " used, largest free range " + std::to_string(largest_free()) +
                    "; release memory or raise sim::Options::memory_bytes");
  }
  const std::size_t offset = fit->first;
  const std::size_t rest = fit->second - take;
  free_.erase(fit);
  if (rest > 0) free_.emplace(offset + take, rest);
  live_.emplace(offset, bytes);
  used_ += take;
  peak_ = std::max(peak_, used_);
  if (kind_ == Kind::poisoned) std::memset(inner_ + offset, 0xFF, take);
  return outer_ + offset;
}

bool DeviceMemory::release(void* address) noexcept {
  const std::scoped_lock guard(mutex_);
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const auto base = reinterpret_cast<std::uintptr_t>(outer_);
  if (start < base) return false;
  const auto found = live_.find(start - base);
  if (found == live_.end()) return false;
  const std::size_t offset = found->first;
  const std::size_t take = rounded(std::max<std::size_t>(found->second, 1), kAlignment);
  live_.erase(found);
  used_ -= take;
  if (kind_ == Kind::host) {
    std::free(address);
    return true;
  }
  if (take >= kReturnPagesFrom) {
    const std::size_t first = rounded(offset, kPage);
    const std::size_t last = (offset + take) / kPage * kPage;
    // Only a courtesy to the host: if refused, the pages stay.
    (void)::madvise(inner_ + first, last - first, MADV_REMOVE);
  }
  insert_free(offset, take);
  return true;
}

void DeviceMemory::insert_free(std::size_t offset, std::size_t bytes) {
  auto range = free_.emplace(offset, bytes).first;
  const auto next = std::next(range);
  if (next != free_.end() && offset + bytes == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range == free_.begin()) return;
  const auto previous = std::prev(range);
  if (previous->first + previous->second == offset) {
    previous->second += range->second;
    free_.erase(range);
  }
}

std::size_t DeviceMemory::largest_free() const {
  std::size_t largest = 0;
  for (const auto& [offset, bytes] : free_) largest = std::max(largest, bytes);
  return largest;
}

MemoryUse DeviceMemory::use() const {
  const std::scoped_lock guard(mutex_);
  return {.limit_bytes = limit_, .used_bytes = used_, .peak_bytes = peak_};
}

std::uint64_t DeviceMemory::live() const {
  const std::scoped_lock guard(mutex_);
  return live_.size();
}

void* DeviceMemory::alias(const void* address, std::size_t bytes, std::size_t alignment) const {
  if (bytes == 0) return inner_;
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  if (kind_ == Kind::host) {
    if (start % alignment != 0) refuse_range(address, bytes, "not aligned to its element type");
    return const_cast<void*>(address);
  }
  const auto base = reinterpret_cast<std::uintptr_t>(outer_);
  if (start < base || start - base >= limit_) {
    refuse_range(address, bytes, "not device memory of this device");
  }
  if (start % alignment != 0) refuse_range(address, bytes, "not aligned to its element type");
  const std::size_t offset = start - base;
  const std::scoped_lock guard(mutex_);
  auto range = live_.upper_bound(offset);
  if (range == live_.begin()) refuse_range(address, bytes, "not allocated, or already released");
  --range;
  const std::size_t inside = offset - range->first;
  if (inside >= range->second) refuse_range(address, bytes, "not allocated, or already released");
  if (bytes > range->second - inside) {
    refuse_range(address, bytes, "reaches past the end of its allocation");
  }
  return inner_ + offset;
}

void DeviceMemory::check(const void* address, std::size_t bytes, bool written) const {
  if (kind_ != Kind::host) {
    (void)alias(address, bytes);
  } else if (bytes > 0 && !mapped_ranges_.cover(address, bytes, written)) {
    refuse_range(address, bytes,
                 written ? "not all of it is memory that this process may write"
                         : "not all of it is memory that this process may read");
  }
}

}  // namespace outboard::sim
