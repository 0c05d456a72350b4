// SPDX-License-Identifier: Apache-2.0
// Regions beyond what a device registers at once, and copies across the borders of registrations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "memory/pinned_region.hpp"
#include "memory/registering_backend.hpp"
#include "outboard/device.hpp"
#include "outboard/error.hpp"
#include "outboard/sim.hpp"
#include "support/expect_error.hpp"
#include "support/may_skip.hpp"

namespace outboard::memory {
namespace {

using testing::RegisteringBackend;

constexpr std::size_t kMiB = std::size_t{1} << 20;

PinnedRegion region_of(device::Backend& backend, std::size_t bytes) {
  return {backend, NumaArena(topology::synthetic("core:2 pu:1"), 0, bytes, "test")};
}

bool in_one(const std::vector<std::span<std::byte>>& chunks, std::span<const std::byte> copy) {
  return std::ranges::any_of(chunks, [&](std::span<std::byte> chunk) {
    return copy.data() >= chunk.data() && copy.data() + copy.size() <= chunk.data() + chunk.size();
  });
}

TEST(ChunkedRegistration, ACeilingOfOneCallMakesManyAndAllGoInReverse) {
  RegisteringBackend backend;
  backend.call_limit_bytes = 64 * kMiB;
  {
    const PinnedRegion region = region_of(backend, 1024 * kMiB + 12345);
    ASSERT_TRUE(region.pinned());
    ASSERT_EQ(backend.registered.size(), 17U);
    const std::byte* next = region.bytes().data();
    for (const std::span<std::byte> chunk : backend.registered) {
      EXPECT_EQ(chunk.data(), next);
      next += chunk.size();
    }
    EXPECT_EQ(next, region.bytes().data() + region.bytes().size());
  }
  EXPECT_TRUE(backend.registered.empty());
  EXPECT_EQ(backend.unregister_calls, 17);
  EXPECT_EQ(backend.out_of_order, 0);
  EXPECT_EQ(backend.unmapped_too_early, 0);
}

/// An address of a device's, that nothing here looks at.
void* const kDevice = reinterpret_cast<void*>(std::uintptr_t{1} << 40);

TEST(ChunkedRegistration, ACopyIsCutAtTheBordersAndNowhereElse) {
  RegisteringBackend backend;
  backend.call_limit_bytes = 64 * kMiB;
  const PinnedRegion region = region_of(backend, 1024 * kMiB);
  std::size_t pieces = 0;
  for (std::size_t offset = 1; offset + 100 * kMiB < region.bytes().size();
       offset += 37 * kMiB + 4099) {
    const auto slice = region.bytes().subspan(offset, 100 * kMiB);
    backend.copies.clear();
    backend.copy_to_host(slice, kDevice, {});
    const std::size_t borders = (offset + slice.size() - 1) / (64 * kMiB) - offset / (64 * kMiB);
    ASSERT_EQ(backend.copies.size(), borders + 1);
    const std::byte* next = slice.data();
    for (const auto copy : backend.copies) {
      EXPECT_TRUE(in_one(backend.registered, copy));
      EXPECT_EQ(copy.data(), next);
      next += copy.size();
    }
    EXPECT_EQ(next, slice.data() + slice.size());
    pieces += backend.copies.size();
  }
  EXPECT_GT(pieces, 50U);
}

TEST(ChunkedRegistration, OneRegistrationIsOneCopyAndSoIsMemoryThatIsNotRegistered) {
  RegisteringBackend backend;
  const PinnedRegion small = region_of(backend, 100 * kMiB);
  ASSERT_EQ(backend.registered.size(), 1U);
  backend.copy_to_device(kDevice, small.bytes(), {});
  EXPECT_EQ(backend.copies.size(), 1U);
  backend.call_limit_bytes = kMiB;
  const PinnedRegion cut = region_of(backend, 2 * kMiB);
  std::vector<std::byte> own(3 * kMiB);
  backend.copies.clear();
  backend.copy_to_device(kDevice, own, {});
  backend.copy_to_device(kDevice, small.bytes(), {});
  backend.copy_to_host(std::span<std::byte>(), kDevice, {});
  EXPECT_EQ(backend.copies.size(), 3U);
  backend.copy_to_device(kDevice, cut.bytes(), {});
  EXPECT_EQ(backend.copies.size(), 5U);
}

TEST(ChunkedRegistration, MoreThanAGibibyteIsNeverAskedForAtOnce) {
  RegisteringBackend backend;
  const PinnedRegion region = region_of(backend, 2304 * kMiB);
  ASSERT_TRUE(region.pinned());
  std::vector<std::size_t> sizes;
  for (const auto chunk : backend.registered) sizes.push_back(chunk.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1024 * kMiB, 1024 * kMiB, 256 * kMiB}));
}

TEST(ChunkedRegistration, ALimitOnAllOfItIsARefusalThatLeavesNothingBehind) {
  RegisteringBackend backend;
  backend.call_limit_bytes = 4 * kMiB;
  backend.total_limit_bytes = 10 * kMiB;
  const PinnedRegion region = region_of(backend, 12 * kMiB);
  EXPECT_FALSE(region.pinned());
  EXPECT_TRUE(backend.registered.empty());
  EXPECT_EQ(backend.unregister_calls, 2);
  EXPECT_EQ(backend.out_of_order, 0);
  const PinnedRegion fits = region_of(backend, 10 * kMiB);
  EXPECT_TRUE(fits.pinned());
}

TEST(ChunkedRegistration, AFailureInTheMiddleLeavesNothingBehind) {
  RegisteringBackend backend;
  backend.call_limit_bytes = kMiB;
  backend.broken_from = 6;
  testing::expect_error(ErrorCode::device_failure, {"broken on purpose"},
                        [&] { (void)region_of(backend, 4 * kMiB); });
  EXPECT_TRUE(backend.registered.empty());
  EXPECT_EQ(backend.out_of_order, 0);
  EXPECT_EQ(backend.unmapped_too_early, 0);
}

// --- the software GPU refuses copies that leave a registration, and moves real bytes -------------

struct Rig {
  explicit Rig(std::size_t device_bytes, std::size_t ceiling)
      : gpu([&] {
          sim::Options options;
          options.memory_bytes = device_bytes;
          options.registration_limit_bytes = ceiling;
          return sim::Gpu(options);
        }()),
        backend(*gpu.device().backend()),
        stream(backend.create_stream("test")) {}
  ~Rig() { backend.destroy_stream(stream); }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  void synchronize() { gpu.synchronize(); }

  sim::Gpu gpu;
  device::Backend& backend;
  NativeStream stream;
};

/// Slices at odd offsets go through the device to other places of the same region.
void exchange_slices(std::size_t region_bytes, std::size_t slice_bytes, std::size_t ceiling) {
  Rig rig(slice_bytes + 4096, ceiling);
  auto* const memory = static_cast<std::byte*>(rig.backend.allocate(slice_bytes));
  {
    const PinnedRegion region = region_of(rig.backend, region_bytes);
    if (!region.pinned()) OUTBOARD_SKIP("this process may not lock " << region_bytes << " bytes");
    EXPECT_EQ(rig.gpu.counters().live_registrations, region_bytes / ceiling);
    const std::span<std::byte> bytes = region.bytes();
    for (std::size_t i = 0; i < bytes.size(); i += 509) {
      bytes[i] = static_cast<std::byte>(i * 2654435761U >> 13);
    }
    for (std::size_t step = 0; step < 5; ++step) {
      const std::size_t from = 1 + step * (slice_bytes / 3 + 777);
      const std::size_t to = bytes.size() - slice_bytes - 3 - step * 4321;
      const std::vector<std::byte> expected(
          bytes.begin() + static_cast<std::ptrdiff_t>(from),
          bytes.begin() + static_cast<std::ptrdiff_t>(from + slice_bytes));
      rig.backend.copy_to_device(memory, bytes.subspan(from, slice_bytes), rig.stream);
      rig.backend.copy_to_host(bytes.subspan(to, slice_bytes), memory, rig.stream);
      rig.synchronize();
      EXPECT_EQ(std::memcmp(bytes.data() + to, expected.data(), slice_bytes), 0) << step;
    }
  }
  EXPECT_EQ(rig.gpu.counters().live_registrations, 0U);
  rig.backend.release(memory);
}

TEST(ChunkedRegistration, BytesArriveAcrossBorders) {
  exchange_slices(32 * kMiB, 5 * kMiB, 2 * kMiB);
}

TEST(ChunkedRegistration, BytesArriveAcrossBordersOfALargeArena) {
  exchange_slices(1024 * kMiB, 100 * kMiB, 64 * kMiB);
}

TEST(ChunkedRegistration, TheDeviceRefusesACopyThatLeavesARegistration) {
  Rig rig(8 * kMiB, SIZE_MAX);
  auto* const memory = static_cast<std::byte*>(rig.backend.allocate(4 * kMiB));
  const NumaArena arena(topology::synthetic("core:2 pu:1"), 0, 4 * kMiB, "test");
  ASSERT_TRUE(rig.backend.register_host(arena.bytes().first(2 * kMiB)));
  testing::expect_error(ErrorCode::invalid_argument, {"copy_to_host", "the first 1048576"}, [&] {
    rig.backend.copy_to_host(arena.bytes().subspan(kMiB, 2 * kMiB), memory, rig.stream);
  });
  testing::expect_error(ErrorCode::invalid_argument, {"copy_to_device", "the first 2097152"}, [&] {
    rig.backend.copy_to_device(memory, arena.bytes().first(2 * kMiB + 1), rig.stream);
  });
  rig.backend.unregister_host(arena.bytes().first(2 * kMiB));
  rig.backend.release(memory);
}

}  // namespace
}  // namespace outboard::memory
