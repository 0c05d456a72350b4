// SPDX-License-Identifier: Apache-2.0
/// Which huge pages the system has for an arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace outboard::memory {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Bytes of huge pages that an administrator has reserved, that nobody has taken or been promised,
/// and that the control groups of this process (hugetlb) let it have: of NUMA node `os_node`, or of
/// the machine if nullopt. Below `root` ("" is the running system). 0 where files are missing or
/// strange; a group that says nothing limits nothing.
[[nodiscard]] std::size_t reserved_huge_bytes(const std::string& root,
                                              std::optional<std::uint32_t> os_node);

/// Whether the system gives transparent huge pages to memory that asks for them.
[[nodiscard]] bool transparent_huge_pages(const std::string& root);

}  // namespace outboard::memory
