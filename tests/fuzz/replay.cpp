// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on files and on every change of one byte in them: fuzzing without a fuzzer.
// On those behind --as-is without changes.
//
// usage: <name> FILE-OR-FOLDER... [--as-is FILE-OR-FOLDER...]
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::size_t runs = 0;

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  ++runs;
}

void replay(const std::filesystem::path& path, bool as_is) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  run(bytes);
  if (as_is) return;
  const std::size_t changed = std::min<std::size_t>(bytes.size(), 2048);
  for (std::size_t i = 0; i < changed; ++i) {
    const char kept = bytes[i];
    for (const int to : {kept ^ 1, kept ^ 0x80, int{'"'}, int{'9'}}) {
      bytes[i] = static_cast<char>(to);
      run(bytes);
    }
    bytes[i] = kept;
    run(bytes.substr(0, i));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t files = 0;
  bool as_is = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--as-is") {
      as_is = true;
    } else if (!std::filesystem::is_directory(argv[i])) {
      replay(argv[i], as_is);
      ++files;
    } else {
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
        replay(entry.path(), as_is);
        ++files;
      }
    }
  }
  std::printf("%zu files, %zu runs\n", files, runs);
  return files > 0 ? 0 : 1;
}
