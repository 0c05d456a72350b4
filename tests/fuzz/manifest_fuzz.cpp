// SPDX-License-Identifier: Apache-2.0
// Any bytes as a manifest: refused by name, or read and written again to the same values, in memory
// that the text's length bounds. The checksum is made right first, or nothing behind it would ever
// be reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ckpt/manifest.hpp"
#include "ckpt/manifest_end.hpp"
#include "fuzz/bounded.hpp"
#include "outboard/error.hpp"

namespace {

/// A parsed value takes some 100 bytes and may be two characters.
constexpr std::size_t kConstantBytes = std::size_t{64} << 10;
constexpr std::size_t kBytesPerByte = 64;

void require(bool holds) {
  if (!holds) std::abort();
}

void read(const std::string& text) {
  using namespace outboard;
  const testing::MemoryBound bound(kConstantBytes + kBytesPerByte * text.size());
  try {
    const ckpt::Manifest manifest = ckpt::read_manifest(text, "fuzzed");
    const std::string again = ckpt::write_manifest(manifest);
    require(ckpt::write_manifest(ckpt::read_manifest(again, "written")) == again);
  } catch (const Error& failure) {
    require(failure.code() == ErrorCode::bad_checkpoint ||
            failure.code() == ErrorCode::unsupported);
    require(std::string_view(failure.what()).find("'fuzzed'") != std::string_view::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  const std::size_t end = outboard::ckpt::manifest_end(0).size();
  const std::string before = text.substr(0, text.size() - std::min(end, text.size()));
  read(before + outboard::ckpt::manifest_end(outboard::ckpt::checksum_of(before)));
  return 0;
}
