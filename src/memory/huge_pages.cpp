// SPDX-License-Identifier: Apache-2.0
#include "memory/huge_pages.hpp"

#include <algorithm>
#include <fstream>

namespace outboard::memory {
namespace {

constexpr const char* kOfTwoMebibytes = "/hugepages/hugepages-2048kB/";

std::uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? number : 0;
}

}  // namespace

std::size_t reserved_huge_bytes(const std::string& root, std::optional<std::uint32_t> os_node) {
  const std::string machine = root + "/sys/kernel/mm" + kOfTwoMebibytes;
  // Promises are not made for a node, so all of them may be kept on this one.
  const std::uint64_t promised = number_in(machine + "resv_hugepages");
  std::uint64_t pages = number_in(machine + "free_hugepages");
  if (os_node) {
    const std::string node = root + "/sys/devices/system/node/node" + std::to_string(*os_node);
    pages = std::min(pages, number_in(node + kOfTwoMebibytes + "free_hugepages"));
  }
  constexpr std::uint64_t most = SIZE_MAX / kHugePage;
  return pages > promised ? std::min(pages - promised, most) * kHugePage : 0;
}

bool transparent_huge_pages(const std::string& root) {
  std::ifstream file(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  return line.find("[always]") != std::string::npos || line.find("[madvise]") != std::string::npos;
}

}  // namespace outboard::memory
