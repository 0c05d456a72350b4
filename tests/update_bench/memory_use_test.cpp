// SPDX-License-Identifier: Apache-2.0
#include "update_bench/memory_use.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "support/expect_error.hpp"

namespace outboard::update_bench {
namespace {

using outboard::testing::expect_error;

/// A folder with the files that are read.
class Root {
 public:
  Root()
      : path_(std::filesystem::path(::testing::TempDir()) /
              ("outboard_root_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_ / "proc");
    std::filesystem::create_directories(path_ / "sys/fs/cgroup");
  }
  ~Root() { std::filesystem::remove_all(path_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  void write(const char* name, const char* text) const { std::ofstream(path_ / name) << text; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(AvailableBytes, IsTheLeastOfMachineAndGroup) {
  const Root root;
  EXPECT_EQ(available_bytes(root.path()), std::nullopt);
  root.write("proc/meminfo", "MemTotal:  4000 kB\nMemFree: 100 kB\nMemAvailable:    3000 kB\n");
  EXPECT_EQ(available_bytes(root.path()), 3000U * 1024);
  root.write("sys/fs/cgroup/memory.max", "max\n");
  root.write("sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(available_bytes(root.path()), 3000U * 1024);
  root.write("sys/fs/cgroup/memory.max", "1005000\n");
  EXPECT_EQ(available_bytes(root.path()), 1'000'000U);
  root.write("sys/fs/cgroup/memory.max", "4000\n");
  EXPECT_EQ(available_bytes(root.path()), 0U);
}

TEST(RequireFree, SaysHowMuchIsMissingAndWhatFits) {
  const std::uint64_t available = 10'000'000'000;
  const double bytes = 14;
  require_free(available - kSpareBytes, available, bytes);
  expect_error(ErrorCode::out_of_memory,
               {"14.00 GB", "10.00 GB", "4.27 GB more", "695111753 parameters"},
               [&] { require_free(14'000'000'000, available, bytes); });
}

TEST(PageUse, CountsTheMappingsThatMeetARegion) {
  const char* smaps =
      "1000-3000 rw-p 00000000 00:00 0 \n"
      "Size:                  8 kB\n"
      "Rss:                   8 kB\n"
      "AnonHugePages:         4 kB\n"
      "3000-4000 r-xp 00000000 08:01 42   /a-b/c d.so\n"
      "Rss:                   4 kB\n"
      "AnonHugePages:         4 kB\n"
      "VmFlags: rd ex mr mw me\n"
      "5000-6000 rw-p 00000000 00:00 0 \n"
      "Rss:                   2 kB\n"
      "AnonHugePages:         0 kB\n";
  const auto region = [](std::uintptr_t first, std::size_t size) {
    return std::span(reinterpret_cast<const std::byte*>(first), size);
  };
  const std::vector<std::span<const std::byte>> regions = {region(0x2000, 0x1000),
                                                           region(0x5800, 0x10)};
  const PageUse use = page_use(smaps, regions);
  EXPECT_TRUE(use.known);
  EXPECT_EQ(use.resident_bytes, 10U * 1024);
  EXPECT_EQ(use.huge_bytes, 4U * 1024);
  EXPECT_FALSE(page_use("", regions).known);
}

TEST(PageUse, SeesThisProcessTouchItsPages) {
  const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) * 64;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::vector<std::span<const std::byte>> region = {
      {static_cast<const std::byte*>(memory), size}};
  std::memset(memory, 1, size);
  const PageUse use = page_use_of_this_process(region);
  EXPECT_TRUE(use.known);
  EXPECT_GE(use.resident_bytes, size);
  (void)munmap(memory, size);
}

}  // namespace
}  // namespace outboard::update_bench
