// SPDX-License-Identifier: Apache-2.0
// Files that are not what was saved: each is refused, named, and never believed.
#include <gtest/gtest.h>

#include <functional>

#include "ckpt/checksum.hpp"
#include "ckpt/manifest_end.hpp"
#include "ckpt/tensor_file.hpp"
#include "memory_files.hpp"
#include "outboard/error.hpp"
#include "small_state.hpp"
#include "support/expect_error.hpp"

namespace outboard {
namespace {

using testing::Bytes;
using testing::expect_error;
using testing::MemoryFiles;
using testing::read_version;
using testing::SmallState;

constexpr const char* kManifest = "/run/save-00000001/manifest.json";

class Damage : public ::testing::Test {
 protected:
  Damage() {
    SmallState state(1);
    ckpt::save(files, "/run", state.request(), state);
  }
  std::string text(const std::string& path) {
    const Bytes& bytes = files.data(path);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void set_text(const std::string& path, const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    files.data(path).assign(bytes.begin(), bytes.end());
  }
  /// A manifest with a right checksum, whatever it says.
  void set_manifest(std::string before_end) {
    set_text(kManifest, before_end + ckpt::manifest_end(ckpt::checksum_of(before_end)));
  }
  std::string manifest_before_end() {
    const std::string all = text(kManifest);
    return all.substr(0, all.size() - ckpt::manifest_end(0).size());
  }
  void edit_manifest(const std::string& from, const std::string& to) {
    std::string edited = manifest_before_end();
    const std::size_t at = edited.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    set_manifest(edited.replace(at, from.size(), to));
  }
  void expect_refused(std::initializer_list<std::string_view> words,
                      ErrorCode code = ErrorCode::bad_checkpoint) {
    expect_error(code, words, [&] { read_version(files, "/run"); });
  }

  MemoryFiles files;
};

TEST_F(Damage, OfEveryByteIsFoundAndTheFileNamed) {
  for (const auto& [path, original] : files.all_files("/run")) {
    for (std::size_t i = 0; i < original.size(); ++i) {
      Bytes& bytes = files.data(path);
      bytes[i] ^= static_cast<std::byte>(1U << (i % 8));
      const auto failure = testing::caught([&] { read_version(files, "/run"); });
      ASSERT_TRUE(failure) << path << ", byte " << i;
      ASSERT_NE(std::string(failure->what()).find("'" + path + "'"), std::string::npos)
          << path << ", byte " << i << ": " << failure->what();
      bytes[i] = original[i];
    }
  }
  EXPECT_EQ(read_version(files, "/run"), 1U);
}

TEST_F(Damage, OfEveryByteOfAFileIsFoundByVerify) {
  const auto checkpoint = ckpt::Checkpoint::open(files, "/run");
  for (const auto& [path, original] : files.all_files("/run")) {
    if (path == kManifest) continue;
    for (std::size_t i = 0; i < original.size(); i += 13) {
      files.data(path)[i] ^= std::byte{0x10};
      expect_error(ErrorCode::bad_checkpoint, {path}, [&] { checkpoint.verify(); });
      files.data(path)[i] = original[i];
    }
  }
}

TEST_F(Damage, OfAnyLengthIsFound) {
  for (const auto& [path, original] : files.all_files("/run")) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{7},
                                   original.size() / 2, original.size() - 1}) {
      files.data(path).resize(size);
      expect_refused({path});
      files.data(path) = original;
    }
    files.data(path).push_back(std::byte{' '});
    expect_refused({path});
    files.data(path) = original;
  }
}

TEST_F(Damage, IsAFileThatIsGone) {
  ASSERT_EQ(files.remove_file("/run/save-00000001/state-00001.safetensors").error, 0);
  expect_refused({"state-00001.safetensors", "No such file"}, ErrorCode::io_failure);
}

TEST_F(Damage, LaterFormatsAreRefusedWithBothNumbers) {
  edit_manifest("\"format_version\": 1", "\"format_version\": 7");
  expect_refused({kManifest, "written by format 7", "this build reads \u2264 1"},
                 ErrorCode::unsupported);
  edit_manifest("\"format_version\": 7", "\"format_version\": 0");
  expect_refused({"format_version is 0"});
}

TEST_F(Damage, LaterFormatsMayNestDeeperAndHaveKeysTwice) {
  const std::string deep = "\"new\": " + std::string(40, '[') + std::string(40, ']') + ",\n";
  edit_manifest("\"counters\"", deep + "\"new\": 1,\n\"counters\"");
  expect_refused({"is nested deeper than 8 levels"});
  edit_manifest("\"format_version\": 1", "\"format_version\": 2");
  expect_refused({kManifest, "written by format 2", "this build reads \u2264 1"},
                 ErrorCode::unsupported);
  edit_manifest("\"format_version\": 2", "\"nested\": {\"format_version\": 2}");
  expect_refused({"is nested deeper than 8 levels"});
}

TEST_F(Damage, IsNamedByItsPlaceInTheManifest) {
  struct Edit {
    const char* from;
    const char* to;
    const char* words;
  };
  const std::string original = manifest_before_end();
  for (const Edit& edit : std::vector<Edit>{
           {"outboard-checkpoint", "other", "format is not"},
           {"\"little\"", "\"big\"", "constants.endianness"},
           {"xxh3-64", "crc32", "constants.checksum"},
           {"\"elems\":600", "\"elems\":-1", "parameters[0].elems"},
           {"\"elems\":600", "\"elems\":1.5e3", "parameters[0].elems"},
           {"\"elems\":600", "\"elems\":18446744073709551615", "parameters[0].elems"},
           {"\"elems\":600", "\"elems\":99999999999999999999999", "parameters[0].elems"},
           {"\"elems\":600", "\"elems\":1e999", "is no JSON"},
           {"\"elems\":600", "\"elems\":601", "600 elements where its manifest has 601"},
           {"\"group\":0", "\"group\":2", "parameters[0].group"},
           {"\"file\":0", "\"file\":4000000000", "streams[0].file"},
           {"\"file\":0", "\"file\":1", "tensors where its manifest has"},
           {"[\"wte\",\"head\"]", "[]", "parameters[0].names is empty"},
           {"[\"wte\",\"head\"]", "[\"wte\",\"wte\"]", "names[1] is not unique"},
           {"\"none\"", "\"wte\"", "parameters[2].names[0] is not unique"},
           {"\"exp_avg\"", "\"exp_avg_sq\"", "its group's rule has 'exp_avg'"},
           {"\"f16\"", "\"f8\"", "parameters[0].dtype"},
           {"\"AdamW\"", "\"Adam2\"", "groups[0].rule"},
           {"\"beta1\":0.9", "\"beta1\":1.5", "groups[0] has a value out of range"},
           {"\"nearest\"", "\"down\"", "groups[0].rounding"},
           {"\"scale\":1024.0", "\"scale\":1000.0", "loss_scale.scale is no power of two"},
           {"\"scale\":1024.0", "\"scale\":-1024.0", "loss_scale.scale is no power of two"},
           {"\"clean_steps\":2", "\"clean_steps\":4294967296", "loss_scale.clean_steps"},
           {"state-00000.safetensors", "../state-00000", "files[0].name is no plain file name"},
           {"state-00000.safetensors", "..", "files[0].name is no plain file name"},
           {"state-00000.safetensors", "a\\u0000b", "files[0].name is no plain file name"},
           {"state-00000.safetensors", "state-00001.safetensors", "name is not unique"},
           {"\"accumulation\": 3", "\"accumulation\": 0", "accumulation is 0"},
           {"\"accumulation\": 3", "\"accumulation\": 3, \"accumulation\": 3", "twice"},
           {"\"hex\":\"ff0001\"", "\"hex\":\"ff000\"", "entries.bytes"},
           {"\"hex\":\"ff0001\"", "\"hex\":\"ff00zz\"", "entries.bytes"},
           {"\"digest\": \"", "\"digest\": \"x", "digest is not 16 hexadecimal digits"},
           {"\"digest\"", "\"indigestion\"", "digest is missing"}}) {
    SCOPED_TRACE(std::string(edit.from) + " -> " + edit.to);
    edit_manifest(edit.from, edit.to);
    expect_refused({edit.words});
    set_manifest(original);
  }
  EXPECT_EQ(read_version(files, "/run"), 1U);
}

TEST_F(Damage, DeepNestingIsRefusedWithoutRecursion) {
  set_manifest("{\"a\": " + std::string(5'000'000, '['));
  expect_refused({kManifest, "nested deeper than 8"});
  set_manifest(std::string(5'000'000, '{'));
  expect_refused({kManifest});
}

// --- headers of tensor files -------------------------------------------------------------------

std::string header_of(const std::string& json) {
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    length[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  }
  return length + json;
}

TEST(TensorHeader, HoldsWhatWasPutIn) {
  const std::string header = ckpt::make_header({{"a", 3}, {"b/\"\u00e9", 0}, {"c", 5}});
  EXPECT_EQ(header.size(), 4096U);
  EXPECT_EQ(header[8], '{');
  const auto parsed = ckpt::parse_header(header, 4096 + 32, "f");
  EXPECT_EQ(parsed.data_offset, 4096U);
  ASSERT_EQ(parsed.tensors.size(), 3U);
  EXPECT_EQ(parsed.tensors.at("c").offset, 4096U + 12);
  EXPECT_EQ(parsed.tensors.at("c").elems, 5U);
}

TEST(TensorHeader, BeginsDataOnABorderWhateverItsLength) {
  for (std::size_t length = 1; length < 9000; length += 97) {
    EXPECT_EQ(ckpt::make_header({{std::string(length, 'x'), 1}}).size() % 4096, 0U);
  }
}

TEST(TensorHeader, RefusesWhatDoesNotAddUp) {
  const auto entry = [](const char* dtype, const char* shape, const char* offsets) {
    return "{\"t\":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}}";
  };
  struct Case {
    std::string json;
    std::uint64_t data_bytes;
    const char* words;
  };
  for (const Case& bad : std::vector<Case>{
           {entry("F64", "[1]", "[0,4]"), 4, "t.dtype is not F32"},
           {entry("F32", "[1,1]", "[0,4]"), 4, "t.shape has not one dimension"},
           {entry("F32", "[2]", "[0,4]"), 4, "holds 4 bytes"},
           {entry("F32", "[1]", "[0,8]"), 4, "t.data_offsets[1]"},
           {entry("F32", "[1]", "[4,0]"), 4, "t.data_offsets[0]"},
           {entry("F32", "[1]", "[0,4,4]"), 4, "begin and an end"},
           {entry("F32", "[4611686018427387904]", "[0,0]"), 0, "t.shape[0]"},
           {entry("F32", "[1]", "[18446744073709551612,18446744073709551615]"), 4, "offsets[1]"},
           {entry("F32", "[1]", "[4,8]"), 8, "overlap or leave a gap at byte"},
           {entry("F32", "[1]", "[0,4]"), 8, "up to byte"},
           {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
            "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
            4, "overlap"},
           {"{\"a\":1}", 0, "a is no object"},
           {"[]", 0, "no object"},
           {"{", 0, "is no JSON"}}) {
    SCOPED_TRACE(bad.json);
    const std::string header = header_of(bad.json);
    expect_error(ErrorCode::bad_checkpoint, {"'f'", bad.words},
                 [&] { (void)ckpt::parse_header(header, header.size() + bad.data_bytes, "f"); });
  }
}

TEST(TensorHeader, RefusesLengthsBeyondTheFile) {
  const std::string huge(8, '\xFF');
  expect_error(ErrorCode::bad_checkpoint, {"18446744073709551615"},
               [&] { (void)ckpt::header_bytes(huge, 4096, "f"); });
  expect_error(ErrorCode::bad_checkpoint, {"says that its header has 100"},
               [&] { (void)ckpt::header_bytes(std::string("d\0\0\0\0\0\0\0", 8), 50, "f"); });
  expect_error(ErrorCode::bad_checkpoint, {"too short"},
               [&] { (void)ckpt::header_bytes("abc", 3, "f"); });
}

}  // namespace
}  // namespace outboard
