// SPDX-License-Identifier: Apache-2.0
// What save() and load() refuse, report and survive.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "support/expect_error.hpp"
#include "support/log_lines.hpp"
#include "support/manual_trainer.hpp"
#include "support/temporary_folder.hpp"

namespace outboard {
namespace {

using namespace testing;

/// Parameters of one size by name, in the order given.
TinyOptions model(const std::vector<std::string>& names) {
  TinyOptions options;
  options.device = virtual_device();
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.config.loss_scaling = {.initial_scale = 64.0};
  for (const std::string& name : names) options.parameters.push_back({name, 5000});
  // By name, not by place.
  options.gradient = [names](const GradientPoint& at) {
    return mixed_unit(at.step, static_cast<std::uint32_t>(names[at.parameter][0]), at.element);
  };
  return options;
}

bool told(const LogLines& lines, const std::string& begin) {
  const auto texts = lines.texts();
  return std::ranges::any_of(texts, [&](const auto& text) { return text.starts_with(begin); });
}

class CheckpointCalls : public ::testing::Test {
 protected:
  std::string saved(const TinyOptions& options, std::uint64_t steps = 3) {
    TinyTrainer trainer(options);
    trainer.start();
    trainer.run(steps);
    for (std::uint32_t i = 0; i < options.parameters.size(); ++i) {
      expected_[options.parameters[i].name] = trainer.state(i);
    }
    return trainer.engine().save(folder.path("run"), {.keep_last = 0}).folder;
  }
  /// Weight and state are those that were saved under this name.
  void expect_saved(TinyTrainer& trainer, std::uint32_t i) {
    EXPECT_TRUE(trainer.state(i) == expected_.at(trainer.options().parameters[i].name)) << i;
  }
  void flip_byte(const std::string& file, std::uint64_t at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
  }
  TemporaryFolder folder;
  std::map<std::string, TinyTrainer::State> expected_;
};

TEST_F(CheckpointCalls, FindParametersByName) {
  saved(model({"a", "b", "c"}));
  TinyTrainer trainer(model({"c", "a", "b"}));
  trainer.start();
  trainer.engine().load(folder.path("run"));
  for (std::uint32_t i = 0; i < 3; ++i) expect_saved(trainer, i);
}

/// Random bits are drawn by a parameter's place among the others.
TEST_F(CheckpointCalls, WantTheSameOrderWhereRoundingIsStochastic) {
  const auto rounded_at_random = [](const std::vector<std::string>& names) {
    TinyOptions options = model(names);
    TinyRule rule{AdamW{.lr = 1e-2}};
    rule.options = {.rounding = Rounding::stochastic, .seed = 7};
    options.rules = {rule};
    return options;
  };
  saved(rounded_at_random({"a", "b", "c"}));
  TinyTrainer same(rounded_at_random({"a", "b", "c"}));
  same.start();
  same.engine().load(folder.path("run"));
  TinyTrainer other(rounded_at_random({"a", "c", "b"}));
  other.start();
  expect_error(ErrorCode::bad_checkpoint, {"'c'", "is parameter 1 here and was 2", "stochastic"},
               [&] { other.engine().load(folder.path("run")); });
  EXPECT_EQ(other.engine().load(folder.path("run"), {.strict = false}).differences.size(), 2U);
}

TEST_F(CheckpointCalls, ListWhatIsMissingAndExtra) {
  saved(model({"a", "b", "c"}));
  TinyTrainer trainer(model({"c", "d", "a"}));
  trainer.start();
  const TinyTrainer::State untouched = trainer.state(1);
  const std::uint64_t digest = trainer.engine().state_digest();
  expect_error(ErrorCode::bad_checkpoint,
               {"no state of 1 parameters of the engine: 'd'",
                "state of 1 parameters that the engine has not: 'b'", "strict = false"},
               [&] { trainer.engine().load(folder.path("run")); });
  EXPECT_EQ(trainer.engine().state_digest(), digest) << "a refused load changes nothing";
  const LoadReport report = trainer.engine().load(folder.path("run"), {.strict = false});
  EXPECT_EQ(report.missing, (std::vector<std::string>{"d"}));
  EXPECT_EQ(report.extra, (std::vector<std::string>{"b"}));
  EXPECT_TRUE(report.differences.empty());
  expect_saved(trainer, 0);
  expect_saved(trainer, 2);
  EXPECT_TRUE(trainer.state(1) == untouched);
  trainer.run(2);
}

TEST_F(CheckpointCalls, SaveWhatIsTrainedAndBeginWhatIsThawedAtZero) {
  TinyOptions options = model({"a", "b", "c"});
  TinyTrainer trainer(options);
  trainer.start_with(1);
  trainer.run(2);
  const SaveReport one = trainer.engine().save(folder.path("run"));
  EXPECT_LE(one.bytes, 5000U * 12 * 101 / 100 + 65536);
  trainer.add_parameters(2);
  trainer.commit();
  const SaveReport two = trainer.engine().save(folder.path("run"));
  EXPECT_EQ(two.bytes - one.bytes, trainer.engine().checkpoint_bytes() - one.bytes);
  EXPECT_GE(two.bytes - one.bytes, 5000U * 12);
  TinyTrainer loaded(options);
  loaded.start_with(2);
  loaded.engine().load(folder.path("run"));
  EXPECT_EQ(loaded.engine().step_count(loaded.id(0)), 2U);
  EXPECT_EQ(loaded.engine().step_count(loaded.id(1)), 0U);
  EXPECT_TRUE(loaded.state(0) == trainer.state(0));
  EXPECT_TRUE(loaded.state(1) == trainer.state(1));
}

TEST_F(CheckpointCalls, KeepTiedWeightsOnce) {
  const Config config = model({}).config;
  const std::vector<float> values(100, 0.5F);
  const auto tied = [&](ManualTrainer& trainer, const char* first, const char* second) {
    const GroupId group = trainer.engine->add_group(AdamW{});
    const ParameterId id = trainer.add(first, values, group);
    ParameterSpec again{second, DType::f16, values.size(), trainer.weight(id), group, {}};
    EXPECT_EQ(trainer.engine->add_parameter(again), id);
    trainer.engine->commit();
  };
  ManualTrainer saver(config);
  tied(saver, "wte", "head");
  EXPECT_LE(saver.engine->save(folder.path("run")).bytes, 100U * 12 + 8192);
  ManualTrainer same(config);
  tied(same, "head", "wte");
  same.engine->load(folder.path("run"));
  ManualTrainer untied(config);
  const GroupId group = untied.engine->add_group(AdamW{});
  untied.add("wte", values, group);
  untied.add("head", values, group);
  untied.engine->commit();
  expect_error(ErrorCode::bad_checkpoint, {"'head'", "'wte'", "were one"},
               [&] { untied.engine->load(folder.path("run")); });
}

TEST_F(CheckpointCalls, RefuseAnotherSizeInAnyMode) {
  saved(model({"a", "b"}));
  TinyOptions other = model({"a", "b"});
  other.parameters[1].elems = 5001;
  TinyTrainer trainer(other);
  trainer.start();
  expect_error(ErrorCode::bad_checkpoint, {"'b'", "5001 elements", "has 5000"},
               [&] { trainer.engine().load(folder.path("run"), {.strict = false}); });
}

TEST_F(CheckpointCalls, NameEveryDifferenceAndLoadWhatFits) {
  saved(model({"a", "b"}));
  const auto refuse = [&](const TinyOptions& options,
                          std::initializer_list<std::string_view> words) {
    TinyTrainer trainer(options);
    trainer.start();
    expect_error(ErrorCode::bad_checkpoint, words,
                 [&] { trainer.engine().load(folder.path("run")); });
    const LoadReport report = trainer.engine().load(folder.path("run"), {.strict = false});
    EXPECT_FALSE(report.differences.empty());
    EXPECT_EQ(trainer.state(0).p, expected_.at("a").p);
    trainer.continue_at(3);
    trainer.run(2);
    return trainer.state(0).t - 2;
  };
  TinyOptions options = model({"a", "b"});
  options.parameters[1].dtype = DType::bf16;
  EXPECT_EQ(refuse(options, {"'b' is bf16 and was f16"}), 3U);
  options = model({"a", "b"});
  options.rules = {{Lion{}}};
  EXPECT_EQ(refuse(options, {"'a' is updated by Lion", "only its master"}), 0U);
  options = model({"a", "b"});
  options.rules = {{AdamW{}, {.ema_decay = 0.9}}};
  EXPECT_EQ(refuse(options, {"'b' is in a group with other rounding, seed or ema_decay"}), 3U);
  options = model({"a", "b"});
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 2.0};
  EXPECT_EQ(refuse(options, {"loss scale was dynamic, 64"}), 3U);
  options = model({"a", "b"});
  options.config.loss_scaling = {.initial_scale = 2.0, .max_scale = 32.0};
  EXPECT_EQ(refuse(options, {"loss scale was dynamic, 64"}), 3U);
}

TEST_F(CheckpointCalls, BringBackHyperParametersAndEntries) {
  TinyOptions options = model({"a"});
  TinyTrainer trainer(options);
  trainer.start();
  const AdamW changed{.lr = 0.1 / 3, .beta2 = 0.95, .weight_decay = 0.3};
  trainer.engine().set_group(trainer.group(0), changed);
  trainer.step();
  const std::map<std::string, std::string> entries = {
      {"data", "epoch 3, batch 17"}, {"rng", std::string("\0\xFF\x80", 3)}, {"\u00e9", ""}};
  trainer.engine().save(folder.path("run"), {.entries = entries});
  TinyTrainer loaded(options);
  loaded.start();
  EXPECT_EQ(loaded.engine().load(folder.path("run")).entries, entries);
  loaded.continue_at(1);
  trainer.step();
  loaded.step();  // with the group's settings as they were
  EXPECT_TRUE(loaded.state(0) == trainer.state(0));
}

TEST_F(CheckpointCalls, RefusePendingGradients) {
  TinyTrainer trainer(model({"a", "b"}));
  trainer.start();
  trainer.engine().save(folder.path("run"));
  trainer.forward();
  trainer.give_gradient(1);
  for (const bool save : {true, false}) {
    expect_error(ErrorCode::protocol_error,
                 {save ? "save()" : "load()", "'b'", "call step() or discard() first"}, [&] {
                   if (save) trainer.engine().save(folder.path("run"));
                   if (!save) trainer.engine().load(folder.path("run"));
                 });
  }
  trainer.engine().discard();
  trainer.engine().save(folder.path("run"));
  trainer.engine().load(folder.path("run"));
}

TEST_F(CheckpointCalls, RefuseWhatIsNotCommitted) {
  TinyTrainer trainer(model({"a"}));
  trainer.prepare();
  for (const auto& call : std::vector<std::function<void(Engine&)>>{
           [&](Engine& engine) { engine.save(folder.path("run")); },
           [&](Engine& engine) { engine.load(folder.path("run")); },
           [&](Engine& engine) { engine.check_save(folder.path("run")); },
           [&](Engine& engine) { (void)engine.checkpoint_bytes(); }}) {
    expect_error(ErrorCode::protocol_error, {"before commit()"}, [&] { call(trainer.engine()); });
  }
}

TEST_F(CheckpointCalls, SayHowMuchAndWhere) {
  LogLines lines;
  TinyOptions options = model({"a", "b"});
  options.config.log = lines.sink();
  TinyTrainer trainer(options);
  trainer.start();
  trainer.run(2);
  const std::uint64_t planned = trainer.engine().checkpoint_bytes();
  const SaveReport report = trainer.engine().save(folder.path("run"));
  EXPECT_EQ(report.bytes, planned);
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(report.folder)) {
    bytes += entry.file_size();
  }
  EXPECT_EQ(report.bytes, bytes);
  EXPECT_TRUE(told(lines, "save(): " + std::to_string(bytes) + " bytes in '" + report.folder));
  trainer.engine().load(folder.path("run"));
  EXPECT_TRUE(told(lines, "load(): '" + report.folder + "', saved after step 2"));
  expect_error(ErrorCode::invalid_config, {"SaveOptions::file_bytes is 5"},
               [&] { trainer.engine().save(folder.path("run"), {.file_bytes = 5}); });
}

/// Saves what does not fit: foreseen, and training goes on.
TEST_F(CheckpointCalls, ForeseeALimitAndGoOn) {
  TinyTrainer trainer(model({"a", "b"}));
  trainer.start();
  trainer.run(2);
  trainer.engine().save(folder.path("run"));
  const std::uint64_t digest = trainer.engine().state_digest();
  trainer.run(1);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 60'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(ErrorCode::no_space, {"at most 60000", "ulimit -f"},
               [&] { trainer.engine().check_save(folder.path("run")); });
  expect_error(ErrorCode::no_space, {"at most 60000", "Nothing was written"},
               [&] { trainer.engine().save(folder.path("run")); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  trainer.run(1);
  trainer.engine().load(folder.path("run"));
  EXPECT_EQ(trainer.engine().state_digest(), digest);
  trainer.engine().check_save(folder.path("run"));
  trainer.engine().save(folder.path("run"));
}

TEST_F(CheckpointCalls, ForeseeInAFolderThatIsNotThereYet) {
  TinyTrainer trainer(model({"a"}));
  trainer.start();
  const std::string root = folder.path("new") + "//";
  trainer.engine().check_save(root);
  EXPECT_FALSE(std::filesystem::exists(root));
  trainer.engine().save(root);
  trainer.engine().load(root);
}

/// Somebody's own folder inside a checkpoint goes with it.
TEST_F(CheckpointCalls, GoOnWhereAnOlderCheckpointHoldsMoreThanItsFiles) {
  TinyTrainer trainer(model({"a"}));
  trainer.start();
  const std::string old = trainer.engine().save(folder.path("run")).folder;
  std::filesystem::create_directories(old + "/eval/one");
  std::ofstream(old + "/eval/one/scores") << "1";
  for (int i = 0; i < 2; ++i) {
    trainer.run(1);
    EXPECT_EQ(trainer.engine().save(folder.path("run")).warning, "");
  }
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("run")), {}), 1);
}

TEST_F(CheckpointCalls, FindDamageBeforeTheEngineIsTouched) {
  const std::string damaged = saved(model({"a", "b"}));
  flip_byte(damaged + "/state-00000.safetensors", 100'000);
  TinyTrainer trainer(model({"a", "b"}));
  trainer.start();
  trainer.run(1);
  const std::uint64_t digest = trainer.engine().state_digest();
  expect_error(ErrorCode::bad_checkpoint, {damaged + "/state-00000.safetensors"},
               [&] { trainer.engine().load(folder.path("run"), {.verify_first = true}); });
  EXPECT_EQ(trainer.engine().state_digest(), digest);
  trainer.run(1);
}

TEST_F(CheckpointCalls, FindDamageWhileLoadingAndLoadTheOneBefore) {
  const TinyOptions options = model({"a", "b"});
  const std::string good = saved(options, 3);
  const std::uint64_t newest = 4;
  const auto kept = expected_;
  const std::string damaged = saved(options, newest);
  expected_ = kept;
  flip_byte(damaged + "/state-00000.safetensors", 100'000);
  for (const Placement placement : {Placement::host, Placement::device_resident}) {
    TinyOptions here = options;
    here.config.placement = placement;
    TinyTrainer trainer(here);
    trainer.start();
    trainer.engine().set_accumulation(1);
    expect_error(ErrorCode::bad_checkpoint, {damaged, "tensor '", "its checksum differs"},
                 [&] { trainer.engine().load(folder.path("run")); });
    expect_error(ErrorCode::poisoned, {"load() a checkpoint or destroy it", "checksum differs"},
                 [&] { trainer.engine().synchronize(); });
    expect_error(ErrorCode::poisoned, {}, [&] { trainer.engine().save(folder.path("other")); });
    trainer.engine().load(good);
    for (std::uint32_t i = 0; i < 2; ++i) expect_saved(trainer, i);
    trainer.continue_at(3);
    trainer.run(2);
  }
}

TEST_F(CheckpointCalls, KeepAPlacementThatWasChanged) {
  TinyOptions options = model({"a", "b"});
  options.config.placement = Placement::device_resident;
  options.config.keep_host_room = true;
  const std::string damaged = saved(options);
  const std::string good = saved(options);
  flip_byte(damaged + "/state-00000.safetensors", 5000);
  TinyTrainer trainer(options);
  trainer.start();
  trainer.engine().set_placement({.placement = Placement::host});
  EXPECT_TRUE(caught([&] { trainer.engine().load(damaged); }));
  trainer.engine().load(good);
  EXPECT_EQ(trainer.engine().describe().find("device-resident"), std::string::npos)
      << trainer.engine().describe();
  for (std::uint32_t i = 0; i < 2; ++i) expect_saved(trainer, i);
}

/// A device call fails in the middle of a step; the device itself goes on.
TEST_F(CheckpointCalls, MakeAPoisonedEngineSound) {
  const TinyOptions options = model({"a", "b"});
  saved(options);
  TinyTrainer straight(options);
  straight.start();
  straight.run(6);
  std::size_t poisoned = 0;
  for (std::uint64_t nth = 1; nth < 60; nth += 3) {
    for (const sim::Call call :
         {sim::Call::copy_to_host, sim::Call::copy_to_device, sim::Call::kernel}) {
      TinyOptions failing = options;
      failing.device.faults = {{.call = call, .nth = nth, .at_call = true}};
      std::optional<TinyTrainer> made;
      if (caught([&] { made.emplace(failing).start(); })) continue;
      TinyTrainer& trainer = *made;
      if (!caught([&] { trainer.run(5); })) continue;
      if (!caught([&] { trainer.engine().synchronize(); })) continue;  // it was the trainer's own
      poisoned += 1;
      trainer.engine().load(folder.path("run"));
      for (std::uint32_t i = 0; i < 2; ++i) expect_saved(trainer, i);
      trainer.continue_at(3);
      trainer.run(3);
      EXPECT_EQ(trainer.engine().state_digest(), straight.engine().state_digest());
    }
  }
  EXPECT_GE(poisoned, 10U);
}

TEST_F(CheckpointCalls, WantAllOfAPoisonedEngine) {
  const TinyOptions options = model({"a"});
  saved(options);
  TinyOptions failing = model({"a", "b"});
  failing.device.faults = {{.call = sim::Call::copy_to_host, .nth = 8, .at_call = true}};
  TinyTrainer trainer(failing);
  trainer.start();
  ASSERT_TRUE(caught([&] { trainer.run(5); }));
  expect_error(ErrorCode::poisoned, {"lacks some of its parameters"},
               [&] { trainer.engine().load(folder.path("run"), {.strict = false}); });
}

TEST_F(CheckpointCalls, SayThatALostDeviceStaysLost) {
  saved(model({"a"}));
  TinyOptions failing = model({"a"});
  failing.device.faults = {{.call = sim::Call::kernel, .nth = 8, .at_call = false}};
  TinyTrainer trainer(failing);
  trainer.start();
  ASSERT_TRUE(caught([&] { trainer.run(5); }));
  for (int i = 0; i < 2; ++i) {
    expect_error(ErrorCode::device_failure, {}, [&] { trainer.engine().load(folder.path("run")); });
    expect_error(ErrorCode::poisoned, {"load() could not make it anew"},
                 [&] { trainer.engine().synchronize(); });
  }
  expect_error(ErrorCode::poisoned, {}, [&] { trainer.engine().commit(); });
}

}  // namespace
}  // namespace outboard
