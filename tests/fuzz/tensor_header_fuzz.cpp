// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tensor file: refused by name, or every tensor lies inside the file and no two
// overlap; in memory that the file's length bounds.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ckpt/tensor_file.hpp"
#include "fuzz/bounded.hpp"
#include "outboard/error.hpp"

namespace {

/// A parsed value takes some 100 bytes and may be two characters.
constexpr std::size_t kConstantBytes = std::size_t{64} << 10;
constexpr std::size_t kBytesPerByte = 64;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace outboard;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const testing::MemoryBound bound(kConstantBytes + kBytesPerByte * size);
  try {
    const std::uint64_t length =
        ckpt::header_bytes(file.substr(0, std::min<std::size_t>(8, size)), size, "fuzzed");
    require(length <= size);
    const ckpt::TensorHeader header = ckpt::parse_header(file.substr(0, length), size, "fuzzed");
    std::uint64_t bytes = header.data_offset;
    for (const auto& [name, place] : header.tensors) {
      require(place.offset >= header.data_offset && place.offset <= size);
      require(place.elems <= (size - place.offset) / sizeof(float));
      bytes += place.elems * sizeof(float);
    }
    require(bytes == size);
  } catch (const Error& failure) {
    require(failure.code() == ErrorCode::bad_checkpoint);
    require(std::string_view(failure.what()).find("'fuzzed'") != std::string_view::npos);
  }
  return 0;
}
