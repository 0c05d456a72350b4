// SPDX-License-Identifier: Apache-2.0
#include "numa/page_placement.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace outboard::numa_test {
namespace {

namespace fs = std::filesystem;

/// Field `number` (from 1) of /proc/<pid>/stat. The second is a name in brackets, with any spaces.
int stat_field(const std::string& line, int number) {
  std::istringstream rest(line.substr(line.rfind(')') + 1));
  std::string word;
  for (int field = 3; field <= number && rest >> word; ++field) {
  }
  return rest ? std::stoi(word) : -1;
}

std::string value_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return line.substr(line.find_first_not_of(" \t", key.size()));
  }
  return "";
}

std::uintptr_t number(const std::string& hexadecimal) {
  return std::stoull(hexadecimal, nullptr, 16);
}

/// Ends of this process's mappings by where they begin.
std::map<std::uintptr_t, std::uintptr_t> mapping_ends() {
  std::map<std::uintptr_t, std::uintptr_t> ends;
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    ends[number(line)] = number(line.substr(line.find('-') + 1));
  }
  return ends;
}

/// "prefer (many):1 anon=512 N0=2 N1=510 kernelpagesize_kB=4": what follows the address.
void read_mapping(const std::string& text, MappedRange& range) {
  // "(many)" is a word of its own, in front of the nodes.
  const bool names_nodes = text.find(':') < text.find('=');
  const std::size_t end = text.find(' ', names_nodes ? text.find(':') : 0);
  range.policy = text.substr(0, end);
  std::istringstream words(end == std::string::npos ? "" : text.substr(end));
  std::size_t small_pages = 1;
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    if (word.starts_with("kernelpagesize_kB=")) {
      small_pages = std::stoul(word.substr(equals + 1)) * 1024 /
                    static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    }
    const bool node = word[0] == 'N' && word.find_first_not_of("0123456789", 1) == equals;
    if (node) range.by_node[std::stoi(word.substr(1))] = std::stoul(word.substr(equals + 1));
  }
  for (auto& [node, pages] : range.by_node) pages *= small_pages;
}

}  // namespace

std::vector<MappedRange> mapped_ranges(const void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const auto ends = mapping_ends();
  std::vector<MappedRange> out;
  std::uintptr_t known_to = begin;
  std::ifstream file("/proc/self/numa_maps");
  for (std::string line; std::getline(file, line);) {
    const std::uintptr_t from = number(line);
    if (!ends.contains(from)) continue;  // it came between the two
    const std::uintptr_t to = ends.at(from);
    if (to <= begin || from >= begin + bytes) continue;
    if (from <= known_to) known_to = to;
    MappedRange& range = out.emplace_back();
    range.address = reinterpret_cast<const std::byte*>(from);
    range.bytes = to - from;
    read_mapping(line.substr(line.find(' ') + 1), range);
  }
  if (known_to < begin + bytes) throw std::runtime_error("numa_maps: mappings are missing");
  return out;
}

std::map<int, std::size_t> pages_by_node(const void* address, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(address) / page * page;
  const std::size_t count =
      (reinterpret_cast<std::uintptr_t>(address) + bytes - first + page - 1) / page;
  std::vector<void*> pages;
  for (std::size_t i = 0; i < count; ++i)
    pages.push_back(reinterpret_cast<void*>(first + i * page));
  std::vector<int> status(count);
  // Without nodes to move to, it tells where each page is.
  if (syscall(SYS_move_pages, 0, count, pages.data(), nullptr, status.data(), 0) != 0) {
    throw std::runtime_error("move_pages: " + std::generic_category().message(errno));
  }
  std::map<int, std::size_t> out;
  for (const int node : status) out[node >= 0 ? node : kUntouched] += 1;
  return out;
}

std::vector<ThreadPlace> other_threads() {
  std::vector<ThreadPlace> out;
  const auto self = static_cast<int>(syscall(SYS_gettid));
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/task")) {
    const int id = std::stoi(entry.path().filename().string());
    if (id == self) continue;
    const std::string allowed = value_of(entry.path() / "status", "Cpus_allowed_list:");
    const std::string stat = first_line(entry.path() / "stat");
    if (allowed.empty() || stat.empty()) continue;  // it has just ended
    out.push_back({id, parse_list(allowed), stat_field(stat, 39)});
  }
  return out;
}

std::set<int> parse_list(const std::string& text) {
  std::set<int> out;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    if (range.find_first_of("0123456789") == std::string::npos) continue;
    const std::size_t dash = range.find('-');
    const int low = std::stoi(range);
    const int high = dash == std::string::npos ? low : std::stoi(range.substr(dash + 1));
    for (int i = low; i <= high; ++i) out.insert(i);
  }
  return out;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::map<int, std::set<int>> cpus_by_node() {
  std::map<int, std::set<int>> out;
  for (const int node : parse_list(first_line("/sys/devices/system/node/online"))) {
    out[node] =
        parse_list(first_line("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist"));
  }
  return out;
}

}  // namespace outboard::numa_test
