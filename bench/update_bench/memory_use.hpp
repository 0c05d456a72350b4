// SPDX-License-Identifier: Apache-2.0
/// What the system says of this machine's memory and of our pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outboard::update_bench {

/// How many bytes can still be allocated without swapping: MemAvailable of /proc/meminfo, or less
/// if the control group allows less. nullopt if nothing is known. `root` holds proc and sys.
[[nodiscard]] std::optional<std::uint64_t> available_bytes(const std::filesystem::path& root = "/");

/// What free memory has to hold beside the arenas: page tables, threads, the program.
inline constexpr std::uint64_t kSpareBytes = std::uint64_t{256} << 20U;
/// @throws Error{out_of_memory} saying by how much, and which size would do, if `needed` and
/// kSpareBytes are more than `available`.
void require_free(std::uint64_t needed, std::uint64_t available, double bytes_per_param);

struct PageUse {
  bool known = false;
  std::uint64_t resident_bytes = 0;
  std::uint64_t huge_bytes = 0;  ///< of them, in huge pages
};
/// Sums over the mappings of `smaps` (the text of /proc/self/smaps) that meet one of `regions`.
[[nodiscard]] PageUse page_use(std::string_view smaps,
                               std::span<const std::span<const std::byte>> regions);
[[nodiscard]] PageUse page_use_of_this_process(std::span<const std::span<const std::byte>> regions);

/// The processor's name, or "" if unknown.
[[nodiscard]] std::string processor_name();
/// Runnable tasks of the whole machine, averaged over a minute; below 0: unknown.
[[nodiscard]] double load_average() noexcept;

}  // namespace outboard::update_bench
