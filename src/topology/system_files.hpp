// SPDX-License-Identifier: Apache-2.0
/// What Linux writes into /proc and /sys, word by word.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace outboard::topology {

/// Nullopt if the file cannot be read or is empty.
[[nodiscard]] std::optional<std::string> first_line(const std::string& path);
/// The first word of a file as a number; nullopt for anything else, negative ones too.
[[nodiscard]] std::optional<std::uint64_t> first_number(const std::string& path);
/// The rest of the first line that starts with `key`, without white space around it.
[[nodiscard]] std::optional<std::string> entry_text(const std::string& path, std::string_view key);
/// The number behind `key` in a line such as "MemTotal:  16 kB". The unit is the caller's to know.
[[nodiscard]] std::optional<std::uint64_t> entry_number(const std::string& path,
                                                        std::string_view key);
/// "0-3,8" as its numbers, ascending, each once; nullopt for anything else and for numbers of 2^20
/// and more. "" has none.
[[nodiscard]] std::optional<std::vector<std::uint32_t>> parse_cpu_list(std::string_view text);
/// The names in a folder that start with `prefix`, sorted; none if it cannot be read, and then
/// `error` is errno.
[[nodiscard]] std::vector<std::string> names_in(const std::string& folder, std::string_view prefix,
                                                int* error = nullptr);

}  // namespace outboard::topology
