// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/flag_words.hpp"

#include <atomic>
#include <cstddef>

namespace outboard::device::cuda {
namespace {

constexpr std::size_t kPageBytes = 16384;
constexpr std::size_t kLineBytes = 64;

}  // namespace

void FlagWords::clear() noexcept {
  for (void* page : pages_) (void)context_.api().host_free(page);
  pages_.clear();
  free_.clear();
}

FlagState FlagWords::take() {
  if (free_.empty()) add_page();
  const FlagState flag = free_.back();
  free_.pop_back();
  std::atomic_ref<std::uint32_t>(*flag.word).store(0);  // a driver may still look at it
  return flag;
}

void FlagWords::give_back(const FlagState& flag) noexcept {
  free_.push_back({flag.word, flag.address, 0, false});  // as long as when it was taken
}

void FlagWords::add_page() {
  constexpr std::size_t kWords = kPageBytes / kLineBytes;
  pages_.reserve(pages_.size() + 1);
  free_.reserve((pages_.size() + 1) * kWords);
  void* page = nullptr;
  context_.require(context_.api().host_allocate(
                       &page, kPageBytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                   "cuMemHostAlloc", {"bytes for flags", kPageBytes});
  pages_.push_back(page);
  CUdeviceptr address = 0;
  context_.require(context_.api().host_device_address(&address, page, 0),
                   "cuMemHostGetDevicePointer_v2");
  for (std::size_t i = kWords; i-- > 0;) {
    auto* const line = static_cast<std::byte*>(page) + i * kLineBytes;
    free_.push_back({reinterpret_cast<std::uint32_t*>(line), address + i * kLineBytes, 0, false});
  }
}

}  // namespace outboard::device::cuda
