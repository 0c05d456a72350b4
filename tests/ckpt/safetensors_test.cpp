// SPDX-License-Identifier: Apache-2.0
// Weights to the files that Hugging Face's libraries have, and back to the bit.
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/round_up.hpp"
#include "outboard/engine.hpp"
#include "outboard/half.hpp"
#include "support/manual_trainer.hpp"
#include "support/seeds.hpp"
#include "weights_fixture.hpp"

namespace outboard {
namespace {

using namespace testing;
using nlohmann::json;

Weights some_weights() {
  Weights weights = {{"wte", {}}, {"block0.b\u00e9ta \"q\"", {}}, {"none", {}}, {"ln", {}}};
  const std::size_t sizes[] = {300'001, 1000, 0, 7};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    for (std::size_t e = 0; e < sizes[i]; ++e) {
      weights[i].second.push_back(any_float((std::uint64_t{i} << 32) + e));
    }
  }
  return weights;
}

class Safetensors : public WeightsTest {
 protected:
  void import(const std::string& source, const ImportOptions& options = {}) {
    import_weights(path(source), path("imported"), options);
  }
  void expect_refused(std::initializer_list<std::string_view> words,
                      ErrorCode code = ErrorCode::bad_checkpoint) {
    expect_error(code, words, [&] { import("file.safetensors"); });
    EXPECT_FALSE(std::filesystem::exists(path("imported/save-00000001")));
  }
  /// A file with this header and so many bytes of zeros.
  void write_file(const std::string& header, std::size_t data) {
    std::string text(8, '\0');
    const std::uint64_t size = header.size();
    std::memcpy(text.data(), &size, sizeof(size));
    write(path("file.safetensors"), text + header + std::string(data, '\0'));
  }
};

TEST_F(Safetensors, ComeBackToTheBitFromOneFile) {
  const Weights weights = some_weights();
  const ExportReport report = export_weights(save(weights), path("out"));
  EXPECT_EQ(report.files, std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(names_in(path("out")), report.files);
  EXPECT_EQ(report.tensors, 4U);
  EXPECT_EQ(report.bytes, std::filesystem::file_size(path("out/model.safetensors")));
  const SaveReport imported = import_weights(path("out"), path("imported"));
  EXPECT_TRUE(same_bits(masters(path("imported")), weights));
  const CheckpointInfo info = inspect_checkpoint(imported.folder);
  EXPECT_EQ(info.steps, 0U);
  EXPECT_EQ(info.parameters[0].dtype, DType::f32);
  const auto checkpoint = ckpt::Checkpoint::open(files, imported.folder);
  std::vector<float> moments(1000);
  for (const std::size_t stream : {1U, 2U}) {
    checkpoint.read_range(1, stream, 0, moments);
    EXPECT_EQ(std::ranges::count(moments, 0.0F), 1000);
  }
  export_weights(imported.folder, path("again"));
  EXPECT_EQ(content(path("again/model.safetensors")), content(path("out/model.safetensors")));
}

TEST_F(Safetensors, ComeBackToTheBitFromSeveral) {
  const Weights weights = some_weights();
  const std::string saved = save(weights);
  const ExportReport report = export_weights(saved, path("out"), {.max_shard_bytes = 1'200'010});
  EXPECT_EQ(report.files, (std::vector<std::string>{"model-00001-of-00002.safetensors",
                                                    "model-00002-of-00002.safetensors",
                                                    "model.safetensors.index.json"}));
  EXPECT_EQ(names_in(path("out")), report.files);
  const json index = json::parse(content(path("out/model.safetensors.index.json")));
  EXPECT_EQ(index["metadata"]["total_size"], 4U * (300'001 + 1000 + 7));
  EXPECT_EQ(index["weight_map"]["wte"], report.files[0]);
  EXPECT_EQ(index["weight_map"]["ln"], report.files[1]);
  EXPECT_EQ(index["weight_map"].size(), 4U);
  import("out");
  EXPECT_TRUE(same_bits(masters(path("imported")), weights));
  import("out/" + report.files[1]);  // one of the files by itself
  EXPECT_EQ(masters(path("imported")).size(), 3U);
}

TEST_F(Safetensors, AreRoundedToNearestEvenInSixteenBits) {
  const Weights weights = some_weights();
  const std::string saved = save(weights);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const std::string out = dtype_name(dtype);
    EXPECT_EQ(export_weights(saved, path(out), {.dtype = dtype}).overflowed, 0U);
    Weights expected = weights;
    for (auto& tensor : expected) {
      for (float& value : tensor.second) {
        value = dtype == DType::f16 ? half_to_float(half_from_float(value))
                                    : bf16_to_float(bf16_from_float(value));
      }
    }
    import(out);
    EXPECT_TRUE(same_bits(masters(path("imported")), expected));
    EXPECT_EQ(inspect_checkpoint(path("imported")).parameters[0].dtype, dtype);
    export_weights(path("imported"), path(out + " again"), {.dtype = dtype});
    EXPECT_EQ(content(path(out + " again/model.safetensors")),
              content(path(out + "/model.safetensors")));
  }
}

TEST_F(Safetensors, SayWhatIsTooLargeForThem) {
  const std::string saved =
      save({{"ln", {1.0F, 65519.0F, -65520.0F, 3e38F, -0.0F, 1e-8F, 3.4e38F}}});
  EXPECT_EQ(export_weights(saved, path("f16"), {.dtype = DType::f16}).overflowed, 3U);
  EXPECT_EQ(export_weights(saved, path("bf16"), {.dtype = DType::bf16}).overflowed, 1U);
  EXPECT_EQ(export_weights(saved, path("f32")).overflowed, 0U);
  expect_error(ErrorCode::bad_checkpoint, {"element 2 of tensor 'ln' is infinite"},
               [&] { import("f16"); });
}

TEST_F(Safetensors, TakeNamesAndShapes) {
  const Weights weights = some_weights();
  const std::string saved = save(weights);
  export_weights(saved, path("out"),
                 {.names = {{"wte", "transformer.wte.weight"}},
                  .shapes = {{"block0.b\u00e9ta \"q\"", {2, 20, 25}}, {"none", {0, 3}}}});
  const std::string file = content(path("out/model.safetensors"));
  EXPECT_NE(file.find("\"shape\":[2,20,25]"), std::string::npos);
  EXPECT_NE(file.find("transformer.wte.weight"), std::string::npos);
  import("out", {.names = { { "transformer.wte.weight", "wte" } }});
  EXPECT_TRUE(same_bits(masters(path("imported")), weights));
  const auto refuse = [&](const ExportOptions& options, std::string_view words) {
    expect_error(ErrorCode::invalid_argument, {words},
                 [&] { export_weights(saved, path("no"), options); });
  };
  refuse({.names = {{"wtf", "x"}}}, "has no parameter 'wtf'");
  refuse({.names = {{"wte", "ln"}}}, "two tensors would be called 'ln'");
  refuse({.shapes = {{"ln", {2, 3}}}}, "has 6 elements and the parameter 7");
  refuse({.shapes = {{"ln", {1ULL << 40, 1ULL << 40}}}}, "is too large");
  expect_error(ErrorCode::invalid_argument, {"no tensor 'x' to rename"}, [&] {
    import("out", {.names = { { "x", "y" } }});
  });
  expect_error(ErrorCode::invalid_argument, {"two tensors would be called 'ln'"}, [&] {
    import("out", {.names = { { "none", "ln" } }});
  });
}

TEST_F(Safetensors, LeaveNothingWhereTheyAreNotWritten) {
  const std::string saved = save(some_weights());
  std::filesystem::create_directory(path("there"));
  expect_error(ErrorCode::io_failure, {"'" + path("there") + "' is there already"},
               [&] { export_weights(saved, path("there/")); });
  std::filesystem::create_directory(path("killed.exporting"));
  expect_error(ErrorCode::io_failure, {"was killed: remove it"},
               [&] { export_weights(saved, path("killed")); });
  {
    std::fstream damaged(saved + "/state-00000.safetensors",
                         std::ios::in | std::ios::out | std::ios::binary);
    damaged.seekp(900'000);
    damaged.put('!');
  }
  expect_error(ErrorCode::bad_checkpoint, {"'master/wte'", "its checksum differs"},
               [&] { export_weights(saved, path("out")); });
  EXPECT_FALSE(std::filesystem::exists(path("out")));
  EXPECT_FALSE(std::filesystem::exists(path("out.exporting")));
  expect_error(ErrorCode::io_failure, {"No such file"}, [&] { import("nowhere"); });
  expect_error(ErrorCode::io_failure, {"0 files of safetensors"}, [&] { import("there"); });
}

TEST_F(Safetensors, SayWhatIsWrongWithTheirPlace) {
  const std::string saved = save(some_weights());
  std::filesystem::create_symlink("loop", path("loop"));
  expect_error(ErrorCode::io_failure, {"cannot open '" + path("loop"), "errno"},
               [&] { export_weights(saved, path("loop")); });
  write(path("other.exporting"), "another's");
  EXPECT_TRUE(caught([&] { export_weights(saved, path("other")); }));
  EXPECT_EQ(content(path("other.exporting")), "another's");
  expect_error(ErrorCode::invalid_argument, {"the name given for 'ln' is not UTF-8"}, [&] {
    export_weights(saved, path("out"), {.names = {{"ln", "\xFF"}}});
  });
  expect_error(ErrorCode::invalid_argument, {"a number of heads is for files of llm.c"},
               [&] { export_weights(saved, path("out"), {.heads = 2}); });
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

/// An import has no hyper-parameters of its own.
TEST_F(Safetensors, LeaveTheHyperParametersOfTheEngine) {
  const Weights weights = {{"w", std::vector<float>(10, 0.5F)}};
  export_weights(save(weights), path("out"));
  import("out", {.dtype = DType::f16, .loss_scaling = {.initial_scale = 64.0 }});
  Config config;
  config.host.synthetic_topology = "numa:1 core:1 pu:1";
  config.loss_scaling.initial_scale = 64.0;
  ManualTrainer trainer(config);
  const GroupId group = trainer.engine->add_group(AdamW{.lr = 0.25, .weight_decay = 0.5});
  (void)trainer.add("w", weights[0].second, group);
  trainer.engine->commit();
  const std::string before = trainer.engine->describe();
  trainer.engine->load(path("imported"));
  EXPECT_EQ(trainer.engine->describe(), before);
}

TEST_F(Safetensors, BeginARunThatIsStrictAboutItsState) {
  Weights weights = some_weights();
  for (auto& [name, values] : weights) values.resize(std::min<std::size_t>(values.size(), 500));
  export_weights(save(weights), path("out"));
  import("out", {.dtype = DType::f16, .loss_scaling = {.initial_scale = 64.0 }});
  Config config;
  config.host.synthetic_topology = "numa:1 core:1 pu:1";
  config.accumulation = 3;
  config.max_grad_norm = 1.0;
  ManualTrainer trainer(config);
  const GroupId group = trainer.engine->add_group(AdamW{.lr = 1e-2});
  std::vector<ParameterId> ids;
  for (const auto& [name, values] : weights) {
    ids.push_back(trainer.add(name, std::vector<float>(values.size(), 0.5F), group));
  }
  trainer.engine->commit();
  EXPECT_EQ(trainer.engine->load(path("imported")).steps, 0U);  // it compares the digest too
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_TRUE(same_bits({{"", trainer.state(ids[i]).p}}, {{"", weights[i].second}}));
    EXPECT_EQ(trainer.engine->step_count(ids[i]), 0U);
  }
}

TEST_F(Safetensors, OfOthersAreReadWhateverTheirOrder) {
  write_file(R"({"b":{"dtype":"BF16","shape":[],"data_offsets":[4,6]},)"
             R"("a":{"shape":[1,1],"dtype":"F32","data_offsets":[0,4],"more":1}} )",
             6);
  import("file.safetensors");
  EXPECT_TRUE(same_bits(masters(path("imported")), {{"a", {0.0F}}, {"b", {0.0F}}}));
}

TEST_F(Safetensors, AreNotBelieved) {
  const auto one = [](const std::string& entry) { return R"({"a":{)" + entry + "}}"; };
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  struct Bad {
    std::string header;
    std::size_t data;
    const char* words;
  };
  for (
      const Bad& bad : std::vector<Bad>{
          {one(good), 7, "data_offsets[1] is 8 and may be at most 7"},
          {one(good), 9, "has tensors up to byte"},
          {R"({"a":{)" + good + R"(},"b":{)" + good + "}}", 8, "overlap"},
          {R"({"a":{)" + good + R"(},"a":{)" + good + "}}", 8, "twice in one object"},
          {one(R"("dtype":"I64","shape":[1],"data_offsets":[0,8])"), 8, "a.dtype is 'I64'"},
          {one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8, "holds 8 bytes"},
          {one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8, "a.shape[0]"},
          {one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"), 8,
           "too many elements"},
          {one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8, "data_offsets[0]"},
          {one(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), 8, "not a begin and an end"},
          {one(R"("dtype":"F32","shape":[2,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,8])"),
           8, "too many dimensions"},
          {R"({"a":1})", 0, "a is no object"},
          {"[]", 0, "no object"},
          {"{", 0, "is no JSON"},
          {std::string(100, '['), 0, "nested deeper"}}) {
    SCOPED_TRACE(bad.words);
    write_file(bad.header, bad.data);
    expect_refused({path("file.safetensors"), bad.words});
  }
  write(path("file.safetensors"), "short");
  expect_refused({"too short for a header"});
  write(path("file.safetensors"), std::string(16, '\xFF'));
  expect_refused({"says that its header has"});
  write_file(one(R"("dtype":"F16","shape":[2],"data_offsets":[0,4])"), 2);
  std::ofstream(path("file.safetensors"), std::ios::app | std::ios::binary) << "\x01\x7E";
  expect_refused({"element 1 of tensor 'a' is NaN"});
}

TEST_F(Safetensors, AreHeldAgainstTheirIndex) {
  export_weights(save(some_weights()), path("out"), {.max_shard_bytes = 1'200'010});
  const std::string index = path("out/model.safetensors.index.json");
  const json original = json::parse(content(index));
  const auto refuse = [&](const std::function<void(json&)>& change, std::string_view words,
                          ErrorCode code = ErrorCode::bad_checkpoint) {
    json changed = original;
    change(changed);
    write(index, changed.dump());
    expect_error(code, {words}, [&] { import("out"); });
  };
  refuse([](json& all) { all["weight_map"]["more"] = all["weight_map"]["ln"]; },
         "has 3 tensors where the index has 4");
  refuse([](json& all) { all["weight_map"].erase("ln"); }, "where the index has 2");
  refuse(
      [](json& all) {
        all["weight_map"]["lm"] = all["weight_map"]["ln"];
        all["weight_map"].erase("ln");
      },
      "has a tensor 'ln' that the index does not have there");
  refuse([](json& all) { all["weight_map"]["ln"] = "../x"; }, "is no plain file name");
  refuse(
      [](json& all) {
        all["weight_map"] = {{"ln", "x.safetensors"}};
      },
      "No such file", ErrorCode::io_failure);
  refuse([](json& all) { all["weight_map"] = 1; }, "weight_map is no object");
  refuse([](json& all) { all.erase("weight_map"); }, "weight_map is missing");
}

/// Whatever is in the header, it is read or refused.
TEST_F(Safetensors, WithAnyChangeOfTheirHeaderAreReadOrRefused) {
  Weights weights = some_weights();
  for (auto& [name, values] : weights) values.resize(std::min<std::size_t>(values.size(), 5));
  export_weights(save(weights), path("out"));
  const std::string good = content(path("out/model.safetensors"));
  const std::size_t header = 8 + static_cast<std::uint8_t>(good[0]) +
                             256 * static_cast<std::size_t>(static_cast<std::uint8_t>(good[1]));
  std::size_t refused = 0, read = 0;
  for_each_seed(400, [&](std::uint64_t seed) {
    std::string bad = good;
    for (std::uint64_t i = 0; i < 1 + seed % 3; ++i) {
      const std::uint64_t random = core::mix64(seed * 8 + i);
      bad[random % header] = "0123456789[]{},:\"\\a\xFF"[(random >> 32) % 20];
    }
    write(path("file.safetensors"), bad);
    std::filesystem::remove_all(path("imported"));
    const auto failure = caught([&] { import("file.safetensors"); });
    (failure ? refused : read) += 1;
  });
  EXPECT_GE(refused, 100U);
}

}  // namespace
}  // namespace outboard
