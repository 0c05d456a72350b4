// SPDX-License-Identifier: Apache-2.0
#include "text_files.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>

namespace example {
namespace {

namespace fs = std::filesystem;

/// Length of the UTF-8 sequence that starts with `lead`, and the smallest code point it may carry;
/// length 0 if none starts so.
struct Sequence {
  std::size_t length;
  std::uint32_t lowest;
  std::uint32_t lead_bits;
};
Sequence sequence_of(std::uint8_t lead) {
  if (lead < 0x80) return {1, 1, lead};
  if ((lead & 0xE0) == 0xC0) return {2, 0x80, lead & 0x1Fu};
  if ((lead & 0xF0) == 0xE0) return {3, 0x800, lead & 0x0Fu};
  if ((lead & 0xF8) == 0xF0) return {4, 0x10000, lead & 0x07u};
  return {0, 0, 0};
}

/// Bytes of the code point at the front; 0 if it is not well-formed.
std::size_t code_point(std::span<const std::uint8_t> bytes) {
  const Sequence sequence = sequence_of(bytes.front());
  if (sequence.length == 0 || sequence.length > bytes.size()) return 0;
  std::uint32_t value = sequence.lead_bits;
  for (std::size_t i = 1; i < sequence.length; ++i) {
    if ((bytes[i] & 0xC0) != 0x80) return 0;
    value = (value << 6) | (bytes[i] & 0x3Fu);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  return value < sequence.lowest || value > 0x10FFFF || surrogate ? 0 : sequence.length;
}

void append(Text& text, const std::vector<std::uint8_t>& bytes) {
  if (text.bytes.size() + bytes.size() > kMaxDataBytes) {
    throw DataError("the data has more than " + std::to_string(kMaxDataBytes) +
                    " bytes; pass fewer files");
  }
  text.bytes.insert(text.bytes.end(), bytes.begin(), bytes.end());
  ++text.files;
}

void add_file(Text& text, const fs::path& path) {
  const auto bytes = read_file(path);
  if (bytes.empty()) throw DataError(path.string() + " is empty; pass a file with text");
  if (!is_text(bytes)) {
    throw DataError(path.string() + " is not UTF-8 text; convert it or pass another file");
  }
  append(text, bytes);
}

void add_folder(Text& text, const fs::path& folder) {
  for (const auto& path : files_below(folder)) {
    std::ifstream readable(path, std::ios::binary);
    const auto bytes = readable ? read_file(path) : std::vector<std::uint8_t>{};
    if (bytes.empty() || !is_text(bytes)) {
      ++text.skipped_files;
    } else {
      append(text, bytes);
    }
  }
}

}  // namespace

bool is_text(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const std::size_t length = bytes.front() == 0 ? 0 : code_point(bytes);
    if (length == 0) return false;
    bytes = bytes.subspan(length);
  }
  return true;
}

bool is_folder(const fs::path& path, const char* pass) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status)) return fs::is_directory(status);
  throw DataError(
      path.string() +
      (status.type() == fs::file_type::not_found ? " does not exist" : ": " + error.message()) +
      "; pass " + pass);
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  const auto options = fs::directory_options::skip_permission_denied;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(folder, options)) {
      if (!entry.is_symlink() && entry.is_regular_file()) files.push_back(entry.path());
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError("cannot read folder " + folder.string() + ": " + error.code().message() +
                    "; pass one that stays as it is while it is read");
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::uint8_t> read_file(const fs::path& path) {
  std::error_code error;
  // Asked before it is opened: opening a pipe waits for somebody to write to it.
  const std::uintmax_t size = fs::file_size(path, error);
  std::ifstream file;
  if (!error) file.open(path, std::ios::binary);
  if (!file || error) {
    throw DataError("cannot read " + path.string() +
                    "; check that it is a file and its permissions");
  }
  if (size > kMaxDataBytes) {
    throw DataError(path.string() + " has " + std::to_string(size) + " bytes; at most " +
                    std::to_string(kMaxDataBytes) + " are read: pass a part of it");
  }
  std::vector<std::uint8_t> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

Text load_text(const std::vector<fs::path>& paths) {
  Text text;
  for (const auto& path : paths) {
    is_folder(path, "files or folders of UTF-8 text") ? add_folder(text, path)
                                                      : add_file(text, path);
  }
  if (text.bytes.empty()) {
    throw DataError("no text found: 0 files read, " + std::to_string(text.skipped_files) +
                    " passed over as empty or not UTF-8; pass files or folders of UTF-8 text");
  }
  return text;
}

}  // namespace example
