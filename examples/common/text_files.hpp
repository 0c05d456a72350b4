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

/// Whether `path` is a folder. @throws DataError if nothing is there or it cannot be looked at;
/// `pass` says what to pass instead.
[[nodiscard]] bool is_folder(const std::filesystem::path& path, const char* pass);
/// Every regular file in and below `folder`, in the order of their names, without symbolic links
/// and folders that may not be entered. @throws DataError if a folder changes meanwhile.
[[nodiscard]] std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

/// Never waits: a pipe is refused.
/// @throws DataError for a file that is missing, no file, unreadable or larger than kMaxDataBytes.
[[nodiscard]] std::vector<std::uint8_t> read_file(const std::filesystem::path& path);

/// Reads files, and folders with all that is below them (in the order of their names; symbolic
/// links and files that are not text are passed over).
/// @throws DataError for a path that is missing, a named file that is empty or not text, and when
/// all together is empty or more than kMaxDataBytes.
[[nodiscard]] Text load_text(const std::vector<std::filesystem::path>& paths);

}  // namespace example
