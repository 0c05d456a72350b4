// SPDX-License-Identifier: Apache-2.0
// `outboard bisect` as a user runs it, on runs of a small engine that part on purpose.
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.hpp"
#include "support/temporary_folder.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::cli {
namespace {

using nlohmann::json;

constexpr std::uint64_t kSteps = 6;

std::string hex(std::uint64_t value) {
  char text[17] = {};
  std::snprintf(text, sizeof(text), "%016" PRIx64, value);
  return text;
}

struct RunOptions {
  std::uint64_t parts_at = UINT64_MAX;  ///< step, from 1, whose gradient of "head" differs
  std::uint64_t save_every = 2, digest_every = 1;
};

class Bisect : public ::testing::Test {
 protected:
  /// A folder with run.jsonl and checkpoints.
  std::string run(const std::string& name, const RunOptions& options) {
    testing::TinyOptions model;
    model.device = testing::virtual_device();
    model.config.host.synthetic_topology = "numa:1 core:1 pu:1";
    model.config.loss_scaling.initial_scale = 1024.0;
    model.parameters = {{"wte", 3000}, {"head", 300'000}};
    model.gradient = [options](const testing::GradientPoint& at) {
      const bool other = at.parameter == 1 && at.element == 262'150;
      const float value = testing::mixed_unit(at.step, at.parameter, at.element);
      return other && at.step + 1 == options.parts_at ? value + 0.25F : value;
    };
    testing::TinyTrainer trainer(model);
    trainer.start();
    std::filesystem::create_directory(folder.path(name));
    std::ofstream log(folder.path(name + "/run.jsonl"));
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      trainer.step();
      json line = {{"step", step}, {"outcome", "applied"}, {"ms", step + name.size()}};
      if (step % options.digest_every == 0) {
        line["digest"] = hex(trainer.engine().state_digest());
      }
      log << line.dump() << "\n";
      if (step % options.save_every == 0) {
        trainer.engine().save(folder.path(name), {.keep_last = 0});
      }
    }
    return folder.path(name);
  }
  static Finished bisect(std::vector<std::string> words) {
    words.insert(words.begin(), "bisect");
    return outboard(std::move(words));
  }
  testing::TemporaryFolder folder;
};

TEST_F(Bisect, FindsTheStepAndTheFirstElement) {
  const std::string a = run("a", {});
  const std::string b = run("b", {.parts_at = 3});
  const Finished text = bisect({a, b});
  EXPECT_EQ(text.exit_code, 1) << text.err;
  for (const std::string& part :
       {std::string("the logs part at step 3:\n  digest "),
        std::string("last step after which the state is known to be the same: 2\n"),
        "checkpoints of step 4: " + a + "/save-00000002 and " + b + "/save-00000002\n",
        std::string("parameter 'head', stream master, element 262150: "),
        std::string(
            "3 elements of 3 tensors differ: master/head exp_avg/head exp_avg_sq/head\n")}) {
    EXPECT_TRUE(has(text.out, part)) << part << "\n" << text.out;
  }
  const json found = json::parse(bisect({a, b, "--json"}).out);
  EXPECT_EQ(found["parted"], true);
  EXPECT_EQ(found["step"], 3);
  EXPECT_EQ(found["last_equal_step"], 2);
  EXPECT_EQ(found["checkpoints"]["step"], 4);
  EXPECT_EQ(found["checkpoints"]["first"]["parameter"], "head");
  EXPECT_EQ(found["checkpoints"]["first"]["element"], 262'150);
  EXPECT_NE(found["checkpoints"]["first"]["a_bits"], found["checkpoints"]["first"]["b_bits"]);
  EXPECT_EQ(found["checkpoints"]["tensors"].size(), 3U);
  EXPECT_EQ(found["checkpoints"]["elements"], 3);
}

TEST_F(Bisect, SaysThatRunsAreTheSame) {
  const std::string a = run("a", {});
  const std::string b = run("b", {});
  const Finished text = bisect({a, b});
  EXPECT_EQ(text.exit_code, 0) << text.out;
  EXPECT_TRUE(has(text.out, "tell 6 steps alike, 6 of them with a state digest")) << text.out;
  EXPECT_EQ(json::parse(bisect({a, b, "--json"}).out)["parted"], false);
}

/// Digests of every third step alone: the checkpoints say more.
TEST_F(Bisect, NarrowsByCheckpointsWhatDigestsLeaveOpen) {
  const std::string a = run("a", {.save_every = 1, .digest_every = 3});
  const std::string b = run("b", {.parts_at = 4, .save_every = 1, .digest_every = 3});
  const json found = json::parse(bisect({a, b, "--json"}).out);
  EXPECT_EQ(found["step"], 6);
  EXPECT_EQ(found["last_equal_step"], 3);
  EXPECT_EQ(found["checkpoints"]["step"], 4);
}

TEST_F(Bisect, TakesLogsAloneAndFoldersBesideThem) {
  const std::string a = run("a", {.save_every = 3});
  const std::string b = run("b", {.parts_at = 5, .save_every = 4});
  const std::vector<std::string> logs = {a + "/run.jsonl", b + "/run.jsonl"};
  const Finished alone = bisect(logs);
  EXPECT_EQ(alone.exit_code, 1);
  EXPECT_TRUE(has(alone.out, "part at step 5")) << alone.out;
  EXPECT_TRUE(has(alone.out, "no two checkpoints of one step differ")) << alone.out;
  const Finished same = bisect({logs[0], logs[1], "--checkpoints", a, b});
  EXPECT_TRUE(has(same.out, "no two checkpoints of one step differ")) << same.out;
  const std::string c = run("c", {.parts_at = 5, .save_every = 3});
  const Finished there = bisect({logs[0], logs[1], "--checkpoints", a, c});
  EXPECT_TRUE(has(there.out, "checkpoints of step 6")) << there.out;
}

TEST_F(Bisect, PassesOverADamagedCheckpointAndSaysSo) {
  const std::string a = run("a", {});
  const std::string b = run("b", {.parts_at = 3});
  std::filesystem::resize_file(b + "/save-00000002/manifest.json", 10);
  const Finished text = bisect({a, b});
  EXPECT_TRUE(has(text.out, "checkpoints of step 6")) << text.out;
  EXPECT_TRUE(has(text.out, "note: passed over: '" + b + "/save-00000002")) << text.out;
}

TEST_F(Bisect, RefusesWhatIsNoRun) {
  const std::string a = run("a", {});
  expect_refused({"bisect", a, folder.path("nowhere")}, "cannot read the log");
  expect_refused({"bisect", a, a, "--checkpoints", a}, "--checkpoints");
  std::filesystem::create_directory(folder.path("empty"));
  expect_refused({"bisect", a, folder.path("empty")}, "holds 0 files .jsonl");
  std::ofstream(folder.path("bad.jsonl")) << "{\"step\": 1}\nnonsense\n{\"step\": 2}\n";
  expect_refused({"bisect", a, folder.path("bad.jsonl")}, "line 2: is no JSON object");
  std::ofstream(folder.path("other.jsonl")) << "{\"step\": 100}\n";
  expect_refused({"bisect", a, folder.path("other.jsonl")}, "no step in common");
}

}  // namespace
}  // namespace outboard::cli
