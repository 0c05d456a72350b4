// SPDX-License-Identifier: Apache-2.0
#include "topology/host_limits.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

#include "topology/system_files.hpp"

namespace outboard::topology {
namespace {

constexpr unsigned kIpcLock = 14;  // CAP_IPC_LOCK, of linux/capability.h

/// "Max locked memory   65536   65536   bytes": the first is the soft limit.
std::optional<std::uint64_t> lock_limit(const std::string& root) {
  const auto text = entry_text(root + "/proc/self/limits", "Max locked memory");
  if (!text) return std::nullopt;
  if (text->starts_with("unlimited")) return std::numeric_limits<std::uint64_t>::max();
  return entry_number(root + "/proc/self/limits", "Max locked memory");
}

bool has_capability(const std::string& root, unsigned bit) {
  const auto text = entry_text(root + "/proc/self/status", "CapEff:");
  std::uint64_t set = 0;
  if (!text) return false;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), set, 16);
  return error == std::errc{} && (set >> bit & 1) != 0;
}

/// The word in brackets of "always [madvise] never".
std::string chosen(const std::string& path) {
  const std::string line = first_line(path).value_or("");
  const auto open = line.find('[');
  const auto close = line.find(']', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return "";
  return line.substr(open + 1, close - open - 1);
}

std::optional<std::uint64_t> number_after(const std::string& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  std::uint64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + prefix.size(), last, value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

std::vector<ReservedPages> reserved(const std::string& root) {
  std::vector<ReservedPages> found;
  const std::string nodes = root + "/sys/devices/system/node";
  for (const std::string& node : names_in(nodes, "node")) {
    const auto index = number_after(node, "node");
    if (!index) continue;
    std::string pages = nodes + "/";
    pages.append(node).append("/hugepages");
    for (const std::string& size : names_in(pages, "hugepages-")) {
      std::string folder = pages + "/";
      folder += size;
      const std::uint64_t total = first_number(folder + "/nr_hugepages").value_or(0);
      if (total == 0) continue;
      found.push_back({.os_index = static_cast<std::uint32_t>(*index),
                       .page_kib = number_after(size, "hugepages-").value_or(0),
                       .total = total,
                       .free = first_number(folder + "/free_hugepages").value_or(0)});
    }
  }
  return found;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string container_of(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    for (const auto& [word, name] : {std::pair<const char*, const char*>{"kubepods", "kubernetes"},
                                     {"/docker", "docker"},
                                     {"libpod", "podman"},
                                     {"/lxc", "lxc"}}) {
      if (line.find(word) != std::string::npos) return name;
    }
  }
  if (exists(root + "/run/.containerenv")) return "podman";
  return exists(root + "/.dockerenv") ? "docker" : "";
}

std::string processor_of(const std::string& root) {
  const auto text = entry_text(root + "/proc/cpuinfo", "model name");
  if (!text) return "";
  const auto first = text->find_first_not_of(": \t");
  return first == std::string::npos ? "" : text->substr(first);
}

bool is_wsl(std::string kernel) {
  std::ranges::transform(kernel, kernel.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return kernel.find("microsoft") != std::string::npos;
}

/// The map of the first user namespace: every number is itself.
bool in_first_user_namespace(const std::string& root) {
  std::ifstream words(root + "/proc/self/uid_map");
  if (!words) return true;  // a kernel without them
  std::uint64_t inside = 1, outside = 1, count = 0;
  constexpr std::uint64_t kAllNumbers = 0xFFFF'FFFF;
  return words >> inside >> outside >> count && inside == 0 && outside == 0 && count == kAllNumbers;
}

}  // namespace

bool may_lock_all(const std::string& root) {
  return has_capability(root, kIpcLock) && in_first_user_namespace(root);
}

HostLimits read_host_limits(const std::string& root) {
  HostLimits limits;
  limits.processor = processor_of(root);
  limits.kernel = first_line(root + "/proc/sys/kernel/osrelease").value_or("");
  limits.lock_bytes = lock_limit(root);
  limits.may_lock_more = may_lock_all(root);
  limits.transparent_huge_pages = chosen(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  limits.reserved_pages = reserved(root);
  limits.container = container_of(root);
  limits.wsl = is_wsl(limits.kernel);
  return limits;
}

}  // namespace outboard::topology
