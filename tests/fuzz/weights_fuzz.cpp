// SPDX-License-Identifier: Apache-2.0
// Any bytes as another program's weights: a safetensors file of any dtypes and shapes, the index of
// a folder of such files, or a `.bin` of llm.c, by the first byte. Refused by name, or every
// element is given out; in memory that the file's length bounds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ckpt/memory_files.hpp"
#include "ckpt/weights_source.hpp"
#include "fuzz/bounded.hpp"
#include "outboard/error.hpp"

namespace {

using namespace outboard;

constexpr std::size_t kConstantBytes = std::size_t{256} << 10;
constexpr std::size_t kBytesPerByte = 64;

void require(bool holds) {
  if (!holds) std::abort();
}

testing::Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Two tensors, `a` of two F32 and `b` of one F16.
testing::Bytes small_file() {
  const std::string_view json = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                R"("b":{"dtype":"F16","shape":[],"data_offsets":[8,10]}})";
  const std::uint64_t length = json.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file += json;
  file.append(10, '\1');
  return bytes_of(file);
}

void read_all(const ckpt::WeightsSource& source) {
  for (std::size_t i = 0; i < source.tensors().size(); ++i) {
    std::uint64_t elems = 0;
    source.read(i, [&](std::span<const float> values) { elems += values.size(); });
    require(elems == source.tensors()[i].elems);
  }
}

std::unique_ptr<ckpt::WeightsSource> open(testing::MemoryFiles& files, std::uint8_t kind) {
  switch (kind % 3) {
    case 0:
      return ckpt::open_safetensors(files, "/fuzzed/model.safetensors");
    case 1:
      return ckpt::open_safetensors(files, "/fuzzed");
    default:
      return ckpt::open_llmc(files, "/fuzzed/model.bin");
  }
}

constexpr const char* kNames[] = {"/fuzzed/model.safetensors",
                                  "/fuzzed/model.safetensors.index.json", "/fuzzed/model.bin"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  testing::MemoryFiles files;
  (void)files.make_folder("/fuzzed");
  if (data[0] % 3 == 1) files.put("/fuzzed/small.safetensors", small_file());
  files.put(kNames[data[0] % 3], bytes_of({reinterpret_cast<const char*>(data) + 1, size - 1}));
  const testing::MemoryBound bound(kConstantBytes + kBytesPerByte * size);
  try {
    read_all(*open(files, data[0]));
  } catch (const Error& failure) {
    require(failure.code() == ErrorCode::bad_checkpoint ||
            failure.code() == ErrorCode::unsupported || failure.code() == ErrorCode::io_failure);
    require(std::string_view(failure.what()).find("'/fuzzed") != std::string_view::npos);
  }
  return 0;
}
