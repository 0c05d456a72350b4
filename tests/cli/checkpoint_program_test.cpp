// SPDX-License-Identifier: Apache-2.0
// `outboard ckpt` as a user runs it, on checkpoints of a small engine.
#include <filesystem>
#include <fstream>

#include "cli/program.hpp"
#include "support/temporary_folder.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::cli {
namespace {

class CheckpointProgram : public ::testing::Test {
 protected:
  CheckpointProgram() {
    testing::TinyOptions options;
    options.device = testing::virtual_device();
    options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
    options.config.loss_scaling.initial_scale = 1024.0;
    options.parameters = {{"wte", 3000}, {"head", 70}};
    options.has_gradient = [](std::uint64_t step, std::uint32_t i) { return i == 0 || step == 0; };
    testing::TinyTrainer trainer(options);
    trainer.start();
    for (int i = 0; i < 2; ++i) {
      trainer.step();
      saved.push_back(trainer.engine()
                          .save(folder.path("run"), {.keep_last = 0, .entries = {{"note", "x"}}})
                          .folder);
    }
  }
  testing::TemporaryFolder folder;
  std::vector<std::string> saved;
};

TEST_F(CheckpointProgram, ListsAFolderAndACheckpoint) {
  const Finished all = outboard({"ckpt", "ls", folder.path("run")});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_TRUE(has(all.out, saved[0] + "  step 1, 2 parameters")) << all.out;
  EXPECT_TRUE(has(all.out, saved[1] + "  step 2, 2 parameters")) << all.out;
  const Finished one = outboard({"ckpt", "ls", saved[1]});
  for (const char* part : {"step 2: 2 applied", "wte  f16  3000 elements, t 2, group 0: exp_avg",
                           "head  f16  70 elements, t 1", "AdamW", "entry 'note': 1 bytes"}) {
    EXPECT_TRUE(has(one.out, part)) << part << "\n" << one.out;
  }
}

TEST_F(CheckpointProgram, ListsOnPastADamagedOne) {
  std::filesystem::resize_file(saved[0] + "/manifest.json", 100);
  const Finished all = outboard({"ckpt", "ls", folder.path("run")});
  EXPECT_EQ(all.exit_code, 1) << all.err;
  EXPECT_TRUE(has(all.out, saved[0] + "  DAMAGED: '" + saved[0] + "/manifest.json' does not have"))
      << all.out;
  EXPECT_TRUE(has(all.out, saved[1] + "  step 2, 2 parameters")) << all.out;
  EXPECT_EQ(std::count(all.out.begin(), all.out.end(), '\n'), 2) << all.out;
  std::filesystem::remove(saved[1] + "/state-00000.safetensors");
  const Finished gone = outboard({"ckpt", "ls", folder.path("run")});
  EXPECT_TRUE(has(gone.out, saved[1] + "  NOT READ: cannot open '")) << gone.out;
}

TEST_F(CheckpointProgram, TellsWhatDiffers) {
  const Finished none = outboard({"ckpt", "diff", saved[0], saved[0]});
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_EQ(none.out, "no difference\n");
  const Finished two = outboard({"ckpt", "diff", saved[0], saved[1]});
  EXPECT_EQ(two.exit_code, 1);
  for (const char* part :
       {"steps: 1 and 2", "steps applied: 1 and 2", "loss_scale.clean_steps: 1 and 2",
        "'wte': step count 1 and 2", "'wte': master differs", "'wte': exp_avg differs"}) {
    EXPECT_TRUE(has(two.out, part)) << part << "\n" << two.out;
  }
  EXPECT_FALSE(has(two.out, "'head'")) << two.out;
}

TEST_F(CheckpointProgram, FindsADamagedByte) {
  EXPECT_EQ(outboard({"ckpt", "verify", folder.path("run")}).out, saved[1] + ": whole\n");
  const std::string file = saved[1] + "/state-00000.safetensors";
  {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(10'000);
    stream.put('!');
  }
  const Finished finished = outboard({"ckpt", "verify", folder.path("run")});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_TRUE(has(finished.err, file)) << finished.err;
  EXPECT_EQ(outboard({"ckpt", "verify", saved[0]}).exit_code, 0);
}

TEST_F(CheckpointProgram, ExportsAndImportsWeights) {
  const Finished out = outboard({"ckpt", "export", folder.path("run"), folder.path("hf"), "--dtype",
                                 "f32", "--max-shard-size", "12KB"});
  EXPECT_EQ(out.exit_code, 0) << out.err;
  EXPECT_TRUE(has(out.out, saved[1] + ": 2 tensors to " + folder.path("hf") + ", 3 files"))
      << out.out;
  const Finished in =
      outboard({"ckpt", "import", folder.path("hf"), folder.path("imported"), "--dtype", "f16"});
  EXPECT_EQ(in.exit_code, 0) << in.err;
  EXPECT_TRUE(has(in.out, folder.path("imported/save-00000001"))) << in.out;
  EXPECT_EQ(outboard({"ckpt", "verify", folder.path("imported")}).exit_code, 0);
  EXPECT_TRUE(has(outboard({"ckpt", "ls", folder.path("imported")}).out, "step 0, 2 parameters"));
  const Finished differ = outboard({"ckpt", "diff", saved[1], folder.path("imported")});
  EXPECT_TRUE(has(differ.out, "'wte': exp_avg differs")) << differ.out;
  EXPECT_FALSE(has(differ.out, "master differs")) << differ.out;
  EXPECT_FALSE(has(differ.out, "dtype")) << differ.out;
}

TEST_F(CheckpointProgram, ExportsUnderOtherNamesAndShapes) {
  const auto names = [&](const std::string& text) {
    std::ofstream(folder.path("names.json")) << text;
  };
  names(R"({"wte": {"name": "transformer.wte.weight", "shape": [30, 100]}, "head": "lm"})");
  const std::vector<std::string> words = {"ckpt",
                                          "export",
                                          folder.path("run"),
                                          folder.path("hf"),
                                          "--rename",
                                          folder.path("names.json")};
  EXPECT_EQ(outboard(words).exit_code, 0);
  names(R"({"transformer.wte.weight": "wte", "lm": "head"})");
  EXPECT_EQ(outboard({"ckpt", "import", folder.path("hf"), folder.path("imported"), "--rename",
                      folder.path("names.json")})
                .exit_code,
            0);
  EXPECT_FALSE(has(outboard({"ckpt", "diff", saved[1], folder.path("imported")}).out, "only"));
  for (const char* bad : {"[1]", "{", R"({"wte": 3})", R"({"wte": {}})", R"({"wte": {"shape": 3}})",
                          R"({"wte": {"shape": [-3]}})", R"({"wte": {"names": "x"}})"}) {
    names(bad);
    expect_refused(words, "--rename '" + folder.path("names.json"));
  }
  names(R"({"wte": {"shape": [7]}})");
  const Finished there = outboard(words);
  EXPECT_EQ(there.exit_code, 2);
  EXPECT_TRUE(has(there.err, "has 7 elements and the parameter 3000")) << there.err;
  expect_refused({"ckpt", "export", saved[0], folder.path("x"), "--dtype", "f64"}, "f64");
  const Finished llmc =
      outboard({"ckpt", "export", saved[0], folder.path("x"), "--format", "llmc"});
  EXPECT_EQ(llmc.exit_code, 3);
  EXPECT_TRUE(has(llmc.err, "no transformer of examples/gpt")) << llmc.err;
}

TEST_F(CheckpointProgram, ALimitOfTheMachineHasAStatusOfItsOwn) {
  const std::string export_it = std::string("ulimit -f 1; exec '") + OUTBOARD_PROGRAM +
                                "' ckpt export '" + saved[0] + "' '" + folder.path("x") + "'";
  const Finished finished = text::test::run({{"/bin/sh", "-c", export_it}, {}, {}});
  EXPECT_EQ(finished.exit_code, 3) << finished.err;
  EXPECT_TRUE(has(finished.err, "ulimit -f")) << finished.err;
}

TEST_F(CheckpointProgram, SaysWhatIsNotThere) {
  const Finished finished = outboard({"ckpt", "ls", folder.path("nowhere")});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_TRUE(has(finished.err, "nowhere")) << finished.err;
  expect_refused({"ckpt", "diff", saved[0]}, "other");
}

}  // namespace
}  // namespace outboard::cli
