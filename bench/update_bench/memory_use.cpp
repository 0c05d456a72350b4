// SPDX-License-Identifier: Apache-2.0
#include "update_bench/memory_use.hpp"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "outboard/error.hpp"

namespace outboard::update_bench {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<std::uint64_t> number(std::string_view text, int base = 10) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

/// The number behind `key` in "key   value" lines.
std::optional<std::uint64_t> field(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  return number(text.substr(at + key.size()));
}

template <class Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// "7f00-7f80 rw-p ..." starts a mapping; other lines of smaps start with a name.
std::optional<Range> mapping(std::string_view line) {
  const std::size_t dash = line.find('-');
  const std::size_t space = line.find(' ');
  if (dash == std::string_view::npos || space == std::string_view::npos || dash > space) {
    return std::nullopt;
  }
  const auto begin = number(line.substr(0, dash), 16);
  const auto end = number(line.substr(dash + 1, space - dash - 1), 16);
  if (!begin || !end) return std::nullopt;
  return Range{*begin, *end};
}

std::string in_gb(std::uint64_t bytes) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.2f GB", static_cast<double>(bytes) * 1e-9);
  return text.data();
}

}  // namespace

std::optional<std::uint64_t> available_bytes(const std::filesystem::path& root) {
  std::optional<std::uint64_t> available;
  if (const auto kib = field(read_text(root / "proc/meminfo"), "MemAvailable:")) {
    available = *kib * 1024;
  }
  const std::filesystem::path group = root / "sys/fs/cgroup";
  const auto limit = number(read_text(group / "memory.max"));  // "max" is no number: no limit
  const auto used = number(read_text(group / "memory.current"));
  if (limit && used) {
    const std::uint64_t left = *limit > *used ? *limit - *used : 0;
    available = std::min(available.value_or(left), left);
  }
  return available;
}

void require_free(std::uint64_t needed, std::uint64_t available, double bytes_per_param) {
  if (needed + kSpareBytes <= available) return;
  const std::uint64_t usable = available > kSpareBytes ? available - kSpareBytes : 0;
  const auto fit = static_cast<std::uint64_t>(static_cast<double>(usable) / bytes_per_param);
  throw Error(ErrorCode::out_of_memory,
              "the measurement needs " + in_gb(needed) + " and " + in_gb(kSpareBytes) +
                  " to spare, " + in_gb(needed + kSpareBytes - available) + " more than the " +
                  in_gb(available) + " that are free; at most " + std::to_string(fit) +
                  " parameters fit");
}

PageUse page_use(std::string_view smaps, std::span<const std::span<const std::byte>> regions) {
  PageUse use{.known = !smaps.empty()};
  bool ours = false;
  const auto meets = [&](const Range& range) {
    return std::any_of(regions.begin(), regions.end(), [&](std::span<const std::byte> region) {
      const auto first = reinterpret_cast<std::uintptr_t>(region.data());
      return first < range.end && range.begin < first + region.size();
    });
  };
  for_each_line(smaps, [&](std::string_view line) {
    if (const auto range = mapping(line)) {
      ours = meets(*range);
    } else if (ours && line.starts_with("Rss:")) {
      use.resident_bytes += field(line, "Rss:").value_or(0) * 1024;
    } else if (ours && line.starts_with("AnonHugePages:")) {
      use.huge_bytes += field(line, "AnonHugePages:").value_or(0) * 1024;
    }
  });
  return use;
}

PageUse page_use_of_this_process(std::span<const std::span<const std::byte>> regions) {
  return page_use(read_text("/proc/self/smaps"), regions);
}

std::string processor_name() {
  const std::string text = read_text("/proc/cpuinfo");
  constexpr std::string_view kKey = "model name";
  const std::size_t at = text.find(kKey);
  if (at == std::string::npos) return "";
  const std::size_t colon = text.find(": ", at);
  const std::size_t end = text.find('\n', at);
  return colon < end ? text.substr(colon + 2, end - colon - 2) : "";
}

double load_average() noexcept {
  double load = 0.0;
  return getloadavg(&load, 1) == 1 ? load : -1.0;
}

}  // namespace outboard::update_bench
