// SPDX-License-Identifier: Apache-2.0
// What a C program can get wrong: each call is refused by name, and leaves everything as it was.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "capi/raw_enum.hpp"
#include "outboard/outboard.h"
#include "outboard/sim.hpp"
#include "support/expect_error.hpp"

namespace outboard::testing {
namespace {

void expect_refused(outboard_status status, outboard_status expected,
                    std::initializer_list<std::string_view> words) {
  EXPECT_STREQ(outboard_status_name(status), outboard_status_name(expected));
  expect_words(outboard_last_error(), words);
}

/// An engine on the host device with one committed parameter of 16 floats.
class CEngine {
 public:
  explicit CEngine(bool commit = true) {
    EXPECT_EQ(outboard_device_open("host", &device), OUTBOARD_OK);
    outboard_config config;
    outboard_config_init(&config);
    config.dynamic_loss_scale = 0;
    config.initial_loss_scale = 1.0;
    EXPECT_EQ(outboard_engine_create(device, &config, &engine), OUTBOARD_OK);
    outboard_group settings;
    outboard_group_init(&settings, OUTBOARD_ADAMW);
    EXPECT_EQ(outboard_add_group(engine, &settings, &group), OUTBOARD_OK);
    EXPECT_EQ(add("w", weights.data(), 16), OUTBOARD_OK);
    if (!commit) return;
    EXPECT_EQ(outboard_commit(engine), OUTBOARD_OK);
  }
  ~CEngine() {
    outboard_engine_destroy(engine);
    outboard_device_close(device);
  }
  outboard_status add(const char* name, void* data, std::uint64_t elems, int dtype = OUTBOARD_F32) {
    outboard_parameter parameter;
    outboard_parameter_init(&parameter);
    parameter.name = name;
    parameter.dtype = raw<outboard_dtype>(dtype);
    parameter.elems = elems;
    parameter.data = data;
    parameter.group = group;
    std::uint32_t id = 0;
    return outboard_add_parameter(engine, &parameter, &id);
  }
  std::uint64_t digest() {
    std::uint64_t value = 0;
    EXPECT_EQ(outboard_state_digest(engine, &value), OUTBOARD_OK);
    return value;
  }

  std::vector<float> weights = std::vector<float>(16, 1.0F);
  std::vector<float> gradients = std::vector<float>(16, 0.5F);
  outboard_device* device = nullptr;
  outboard_engine* engine = nullptr;
  std::uint32_t group = 0;
};

TEST(BadCalls, WeightsThatCannotBe) {
  CEngine c(false);
  void* hole = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  sim::Gpu gpu(sim::Options{});
  std::vector<float> other(16);
  const auto bad = OUTBOARD_INVALID_ARGUMENT;
  expect_refused(c.add("x", nullptr, 4), bad, {"'x'", "no `data`"});
  expect_refused(c.add("x", hole, 4), bad, {"'x'", "may write"});
  expect_refused(c.add("x", gpu.allocate(64), 4), bad, {"'x'", "may write"});
  expect_refused(c.add("x", reinterpret_cast<char*>(other.data()) + 1, 4), bad, {"aligned to 4"});
  expect_refused(c.add("x", other.data(), std::numeric_limits<std::uint64_t>::max()), bad,
                 {"more `elems`"});
  expect_refused(c.add("x", other.data(), std::uint64_t{1} << 50), bad, {"may write"});
  expect_refused(c.add("x", c.weights.data() + 4, 8), bad, {"overlaps 'w'"});
  expect_refused(c.add("w", other.data(), 16), bad, {"'w'", "already"});
  expect_refused(c.add("", other.data(), 16), bad, {"name"});
  expect_refused(c.add(nullptr, other.data(), 16), bad, {"parameter->name", "null"});
  for (const int dtype : {3, 7, -1, 255, 256, 258}) {
    expect_refused(c.add("x", other.data(), 16, dtype), OUTBOARD_UNSUPPORTED, {"dtype", "f32"});
  }
  EXPECT_EQ(c.add("x", other.data(), 16), OUTBOARD_OK) << "nothing of the above was kept";
  EXPECT_EQ(outboard_commit(c.engine), OUTBOARD_OK);
  ::munmap(hole, 4096);
}

TEST(BadCalls, GradientsAndIdsThatCannotBe) {
  CEngine c;
  const std::uint64_t before = c.digest();
  const auto give = [&](const void* gradient, std::uint32_t id = 0, std::uint64_t stream = 0) {
    return outboard_gradient_ready(c.engine, id, gradient, stream);
  };
  const auto bad = OUTBOARD_INVALID_ARGUMENT;
  expect_refused(give(nullptr), bad, {"gradient_ready()", "'w'"});
  expect_refused(give(reinterpret_cast<char*>(c.gradients.data()) + 1), bad, {"'w'", "aligned"});
  expect_refused(give(c.gradients.data(), 1), bad, {"parameter id 1 of 1"});
  expect_refused(give(c.gradients.data(), UINT32_MAX), bad, {"unknown"});
  expect_refused(give(c.gradients.data(), 0, 12345), bad, {"stream 12345"});
  expect_refused(outboard_wait(c.engine, 9, 0), bad, {"parameter id 9"});
  std::vector<float> out(16);
  expect_refused(outboard_read_state(c.engine, 0, "master", out.data(), 15), bad, {"16", "15"});
  expect_refused(outboard_read_state(c.engine, 0, "p", out.data(), 16), bad, {"no stream 'p'"});
  expect_refused(outboard_read_state(c.engine, 0, nullptr, out.data(), 16), bad, {"`stream`"});
  expect_refused(outboard_read_state(c.engine, 0, "master", nullptr, 16), bad, {"`out`"});
  EXPECT_EQ(c.digest(), before);
  EXPECT_EQ(give(c.gradients.data()), OUTBOARD_OK);
  expect_refused(give(c.gradients.data()), OUTBOARD_PROTOCOL_ERROR, {"second gradient"});
  EXPECT_EQ(outboard_step(c.engine, nullptr), OUTBOARD_OK);
}

TEST(BadCalls, NullPointers) {
  CEngine c;
  const auto bad = OUTBOARD_INVALID_ARGUMENT;
  std::uint32_t id = 0;
  outboard_group group;
  outboard_group_init(&group, OUTBOARD_ADAM);
  expect_refused(outboard_device_open(nullptr, &c.device), bad, {"`what`"});
  expect_refused(outboard_device_open("host", nullptr), bad, {"`out`"});
  for (const char* name : {"tpu", "cuda:", "cuda:x", "cuda:1x", "Host", ""}) {
    expect_refused(outboard_device_open(name, &c.device), bad, {name, "host"});
  }
  expect_refused(outboard_engine_create(nullptr, nullptr, &c.engine), bad, {"`device`"});
  expect_refused(outboard_engine_create(c.device, nullptr, nullptr), bad, {"`out`"});
  expect_refused(outboard_commit(nullptr), bad, {"outboard_commit()", "`engine`"});
  expect_refused(outboard_add_group(c.engine, nullptr, &id), bad, {"`group`"});
  expect_refused(outboard_add_group(c.engine, &group, nullptr), bad, {"`id`"});
  expect_refused(outboard_add_parameter(c.engine, nullptr, &id), bad, {"`parameter`"});
  expect_refused(outboard_set_group(c.engine, 0, nullptr), bad, {"`settings`"});
  expect_refused(outboard_loss_scale(c.engine, nullptr), bad, {"`out`"});
  expect_refused(outboard_state_digest(c.engine, nullptr), bad, {"`out`"});
  expect_refused(outboard_save(c.engine, nullptr, 1), bad, {"`folder`"});
  expect_refused(outboard_load(c.engine, nullptr, 1), bad, {"`folder`"});
  expect_refused(outboard_get_stats(c.engine, nullptr), bad, {"`out`"});
  expect_refused(outboard_describe(c.engine, nullptr, 5, nullptr), bad, {"`text`"});
  EXPECT_EQ(outboard_engine_destroy(nullptr), OUTBOARD_OK);
  EXPECT_EQ(outboard_device_close(nullptr), OUTBOARD_OK);
  outboard_config_init(nullptr);
  outboard_group_init(nullptr, OUTBOARD_ADAM);
  outboard_parameter_init(nullptr);
}

TEST(BadCalls, SettingsThatCannotBe) {
  CEngine c;
  outboard_engine* other = nullptr;
  const auto create = [&](auto change) {
    outboard_config config;
    outboard_config_init(&config);
    change(config);
    return outboard_engine_create(c.device, &config, &other);
  };
  const auto bad = OUTBOARD_INVALID_CONFIG;
  expect_refused(create([](auto& config) { config.max_grad_norm = -1.0; }), bad,
                 {"max_grad_norm", "-1"});
  expect_refused(create([](auto& config) { config.accumulation = 0; }), bad, {"accumulation"});
  expect_refused(create([](auto& config) { config.bucket_bytes = 1; }), bad, {"bucket_bytes"});
  expect_refused(create([](auto& config) { config.schedule = raw<outboard_schedule>(9); }), bad,
                 {"schedule"});
  expect_refused(create([](auto& config) { config.placement = raw<outboard_placement>(300); }), bad,
                 {"placement"});
  EXPECT_EQ(other, nullptr) << "written on success only";
  outboard_group group;
  std::uint32_t id = 0;
  outboard_group_init(&group, raw<outboard_rule>(17));
  expect_refused(outboard_add_group(c.engine, &group, &id), OUTBOARD_INVALID_ARGUMENT,
                 {"rule", "17"});
  outboard_group_init(&group, OUTBOARD_ADAMW);
  group.beta1 = 1.5;
  expect_refused(outboard_add_group(c.engine, &group, &id), bad, {"beta1", "1.5"});
  group.beta1 = 0.9;
  group.rounding = raw<outboard_rounding>(2);
  expect_refused(outboard_add_group(c.engine, &group, &id), bad, {"rounding"});
}

TEST(BadCalls, StructSizes) {
  CEngine c;
  outboard_engine* other = nullptr;
  outboard_config config;
  outboard_config_init(&config);
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, sizeof(config) + 8, SIZE_MAX}) {
    config.struct_size = size;
    expect_refused(outboard_engine_create(c.device, &config, &other), OUTBOARD_INVALID_ARGUMENT,
                   {"struct_size", std::to_string(size)});
  }
  // A program of an older header, whose struct ended here.
  config.struct_size = offsetof(outboard_config, accumulation);
  config.max_grad_norm = 0.25;
  config.accumulation = 0;  // beyond its end: must not be read
  ASSERT_EQ(outboard_engine_create(c.device, &config, &other), OUTBOARD_OK)
      << outboard_last_error();
  EXPECT_EQ(outboard_engine_destroy(other), OUTBOARD_OK);
  // A result without room is refused before anything is done.
  outboard_step_result zeroed{};
  outboard_stats stats{};
  EXPECT_EQ(outboard_gradient_ready(c.engine, 0, c.gradients.data(), 0), OUTBOARD_OK);
  const auto no_room = {std::string_view("struct_size"), std::string_view("before the call")};
  expect_refused(outboard_step(c.engine, &zeroed), OUTBOARD_INVALID_ARGUMENT, no_room);
  expect_refused(outboard_get_stats(c.engine, &stats), OUTBOARD_INVALID_ARGUMENT, no_room);
  stats.struct_size = sizeof(stats);
  EXPECT_EQ(outboard_get_stats(c.engine, &stats), OUTBOARD_OK);
  EXPECT_EQ(stats.steps_applied, 0U);
  EXPECT_EQ(outboard_discard(c.engine), OUTBOARD_OK);
  // An older result gets what it has room for, and no byte more.
  struct {
    outboard_step_result result;
    char beyond[8];
  } room;
  std::memset(&room, 0x5A, sizeof(room));
  room.result.struct_size = offsetof(outboard_step_result, clip);
  EXPECT_EQ(outboard_gradient_ready(c.engine, 0, c.gradients.data(), 0), OUTBOARD_OK);
  EXPECT_EQ(outboard_step(c.engine, &room.result), OUTBOARD_OK);
  EXPECT_EQ(room.result.step, 1U) << "what was refused was no step";
  EXPECT_EQ(room.result.struct_size, offsetof(outboard_step_result, clip));
  const auto* clip = reinterpret_cast<const unsigned char*>(&room.result.clip);
  EXPECT_EQ(*clip, 0x5A);
}

TEST(BadCalls, HandlesOfWhatIsGone) {
  outboard_engine* engine = nullptr;
  outboard_device* device = nullptr;
  {
    CEngine c;
    engine = c.engine;
    device = c.device;
  }
  const auto bad = OUTBOARD_INVALID_ARGUMENT;
  expect_refused(outboard_step(engine, nullptr), bad, {"outboard_step()", "destroyed"});
  expect_refused(outboard_engine_destroy(engine), bad, {"destroyed"});
  expect_refused(outboard_device_close(device), bad, {"destroyed"});
  outboard_engine* other = nullptr;
  expect_refused(outboard_engine_create(device, nullptr, &other), bad, {"`device`"});
  CEngine another;
  EXPECT_NE(another.engine, engine) << "a handle is never used again";
  int no_handle = 0;
  expect_refused(outboard_commit(reinterpret_cast<outboard_engine*>(&no_handle)), bad,
                 {"no handle"});
}

TEST(BadCalls, TwoThreadsInCallsThatMustBeAlone) {
  CEngine c;
  std::atomic<int> refused{0}, done{0}, other{0};
  const auto work = [&] {
    for (int i = 0; i < 300; ++i) {
      std::uint64_t digest = 0;
      const outboard_status status = outboard_state_digest(c.engine, &digest);
      if (status == OUTBOARD_OK) {
        ++done;
      } else if (status == OUTBOARD_PROTOCOL_ERROR &&
                 std::string(outboard_last_error()).find("another thread") != std::string::npos) {
        ++refused;
      } else {
        ++other;
      }
    }
  };
  const std::uint64_t before = c.digest();
  std::thread a(work), b(work);
  a.join();
  b.join();
  EXPECT_EQ(other, 0);
  EXPECT_EQ(refused + done, 600);
  EXPECT_GT(done, 0);
  EXPECT_EQ(c.digest(), before);
}

TEST(BadCalls, MessagesBelongToTheirThread) {
  EXPECT_NE(outboard_commit(nullptr), OUTBOARD_OK);
  const std::string mine = outboard_last_error();
  std::string fresh = "?", others;
  std::thread([&] {
    fresh = outboard_last_error();
    (void)outboard_discard(nullptr);
    others = outboard_last_error();
  }).join();
  EXPECT_EQ(fresh, "");
  EXPECT_NE(others.find("outboard_discard"), std::string::npos);
  EXPECT_EQ(outboard_last_error(), mine);
}

}  // namespace
}  // namespace outboard::testing
