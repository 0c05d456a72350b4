// SPDX-License-Identifier: Apache-2.0
/// Text from files and folders, checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <vector>

namespace example {

/// What is wrong with the data, which file, how much, and what to do about it.
class DataError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The most that is read, all files together.
inline constexpr std::size_t kMaxDataBytes = std::size_t{1} << 30;

struct Text {
  std::vector<std::uint8_t> bytes;
  std::size_t files = 0;
  std::size_t skipped_files = 0;  ///< found in folders, but empty or not UTF-8 text
};

/// Well-formed UTF-8 without NUL.
[[nodiscard]] bool is_text(std::span<const std::uint8_t> bytes);

/// @throws DataError for a file that is missing, unreadable or larger than kMaxDataBytes.
[[nodiscard]] std::vector<std::uint8_t> read_file(const std::filesystem::path& path);

/// Reads files, and folders with all that is below them (in the order of their names; symbolic
/// links and files that are not text are passed over).
/// @throws DataError for a path that is missing, a named file that is empty or not text, and when
/// all together is empty or more than kMaxDataBytes.
[[nodiscard]] Text load_text(const std::vector<std::filesystem::path>& paths);

}  // namespace example
