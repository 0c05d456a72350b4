// SPDX-License-Identifier: Apache-2.0
/// `outboard topo` and `outboard doctor` as a user runs them.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "../topology/fixture_gpu.hpp"
#include "program.hpp"
#include "support/may_skip.hpp"
#include "support/refused_calls.hpp"

namespace outboard::cli {
namespace {

namespace fixture = testing::fixture;
using nlohmann::json;

/// With a stand-in for NVIDIA's driver; `environment` beside it.
Finished with_driver(std::vector<std::string> arguments, std::vector<std::string> environment) {
  arguments.insert(arguments.begin(), OUTBOARD_PROGRAM);
  environment.emplace_back("LD_LIBRARY_PATH=" OUTBOARD_FAKE_DRIVER_FOLDER);
  return text::test::run({.arguments = std::move(arguments),
                          .environment = std::move(environment),
                          .interrupt_after = {}});
}

void expect_narrow(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    EXPECT_FALSE(line.ends_with(' ')) << "\"" << line << "\"";
  }
}

TEST(TopoProgram, DrawsAMadeUpMachine) {
  const Finished finished = outboard({"topo", "--synthetic", "pack:2 numa:4 core:8 pu:2"});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  expect_narrow(finished.out);
  EXPECT_TRUE(has(finished.out, "NUMA: 8 nodes")) << finished.out;
  EXPECT_TRUE(has(finished.out, "8+8+8+8+8+8+8+7 threads: 64 allowed physical cores"));
  EXPECT_TRUE(has(finished.out, "| #######.             |"));
  EXPECT_TRUE(has(finished.out, "+- node 7 -------------+"));
  EXPECT_TRUE(has(finished.out, "node 1's cpus: 16-31"));
}

TEST(TopoProgram, ThisMachineInTextAndJson) {
  const Finished text = outboard({"topo"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"memory binding: ", "thread binding: ", "memory lock: ", "CPU quota: ",
                           "huge pages: ", "kernels: ", "GPU driver: ", "threads: "}) {
    EXPECT_TRUE(has(text.out, part)) << part << " in " << text.out;
  }
  const Finished finished = outboard({"topo", "--json", "-"});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  const json out = json::parse(finished.out);
  EXPECT_GE(out.at("nodes").size(), 1U);
  EXPECT_GE(out.at("nodes").at(0).at("threads"), 1);
  EXPECT_TRUE(out.at("limits").at("memory_lock").contains("bytes"));
  EXPECT_TRUE(out.at("memory_binding").contains("permitted"));
}

TEST(TopoProgram, AFolderOfFilesIsAMachine) {
  const testing::FixtureRoot root;
  fixture::write_machine(root, {});
  fixture::write_gpu(root, {.address = "0000:17:00.0", .numa_node = "1"});
  fixture::write_gpu(root, {.address = "0000:65:00.0", .numa_node = "7"});
  root.write("/proc/self/cgroup", "0::/job\n");
  root.write("/sys/fs/cgroup/job/cpu.max", "300000 100000\n");
  const Finished finished = outboard({"topo", "--root", root.path()});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  for (const char* part :
       {"CPU quota: 3 cores (", "job/cpu.max =", "2+1 threads: ", "  0  0000:17:00.0     1",
        "  1  0000:65:00.0     unknown", "numa_node says 7", "PCIe 4.0 x16, 31.5 GB/s",
        "| GPU 0000:17:00.0     |", "10 21"}) {
    EXPECT_TRUE(has(finished.out, part)) << part << " in " << finished.out;
  }
  std::filesystem::remove_all(root.path() + "/sys/devices/system/node");
  const Finished without = outboard({"topo", "--root", root.path()});
  EXPECT_EQ(without.exit_code, 0) << without.err;
  EXPECT_TRUE(has(without.out, "NUMA: not available")) << without.out;
}

TEST(TopoProgram, RefusesInOneLineWithStatusTwo) {
  const std::vector<Refusal> cases = {
      {{"topo", "--synthetic", "banana"}, "\"banana\""},
      {{"topo", "--xml", "/nowhere/m.xml"}, "/nowhere/m.xml"},
      {{"topo", "--xml", "a.xml", "--synthetic", "numa:2"}, "excludes"},
      {{"topo", "--threads", "0"}, "--threads"},
      {{"topo", "--synthetic", "numa:2 core:1 pu:1", "--threads", "4000"}, "at most 4096"},
      {{"topo", "--json", "/nowhere/t.json"}, "cannot write /nowhere/t.json"},
      {{"doctor", "--json", "/nowhere/d.json"}, "cannot write /nowhere/d.json"},
  };
  for (const Refusal& refused : cases) expect_refused(refused.arguments, refused.says);
}

TEST(TopoProgram, TheDriversDevicesAreListedByAddress) {
  const Finished finished = with_driver({"topo"}, {});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  for (const char* part :
       {"GPU driver: 2 devices, CUDA 13.0", "0000:f1:00.0", "stand-in 1", "0 is 0000:f0:00.0"}) {
    EXPECT_TRUE(has(finished.out, part)) << part << " in " << finished.out;
  }
  const json out = json::parse(with_driver({"topo", "--json", "-"}, {}).out);
  EXPECT_EQ(out.at("driver").at("state"), "ready");
  EXPECT_EQ(out.at("gpus").back().at("uuid"), "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1");
}

TEST(TopoProgram, ADeviceThatFailsWhenItIsAskedIsNotListed) {
  const Finished finished = with_driver({"topo", "--json", "-"}, {"OUTBOARD_FAKE_LOST=1"});
  const json out = json::parse(finished.out);
  EXPECT_EQ(out.at("driver").at("state"), "driver error");
  EXPECT_TRUE(has(finished.out, "0000:f0:00.0")) << finished.out;
  EXPECT_FALSE(has(finished.out, "0000:f1:00.0")) << finished.out;
}

TEST(DoctorProgram, TheStatusIsWhetherSomethingFails) {
  const Finished fine = with_driver({"doctor"}, {});
  EXPECT_EQ(fine.exit_code, 0) << fine.out;
  expect_narrow(fine.out);
  EXPECT_TRUE(has(fine.out, "[ OK ] driver           2 devices, CUDA 13.0")) << fine.out;
  const Finished none = with_driver({"doctor"}, {"OUTBOARD_FAKE_CUINIT=100"});
  EXPECT_EQ(none.exit_code, 0) << none.out;
  EXPECT_TRUE(has(none.out, "the driver works and has no device")) << none.out;
  const Finished broken = with_driver({"doctor"}, {"OUTBOARD_FAKE_CUINIT=803"});
  EXPECT_EQ(broken.exit_code, 1) << broken.out;
  EXPECT_TRUE(has(broken.out, "[FAIL] driver           driver error: cuInit fails with 803"))
      << broken.out;
  EXPECT_TRUE(has(broken.out, "-> the driver's library and its kernel module")) << broken.out;
  EXPECT_TRUE(has(broken.out, ", 1 failed\n")) << broken.out;
}

TEST(DoctorProgram, ADeviceThatAnotherProcessHasIsBusy) {
  const std::string alone = "OUTBOARD_FAKE_MODE=3";
  const Finished busy = with_driver({"doctor"}, {alone, "OUTBOARD_FAKE_RETAIN=46"});
  EXPECT_EQ(busy.exit_code, 0) << busy.out;
  EXPECT_TRUE(has(busy.out, "[WARN] driver           busy: every device")) << busy.out;
  EXPECT_TRUE(has(busy.out, "EXCLUSIVE_PROCESS")) << busy.out;
  const json out =
      json::parse(with_driver({"topo", "--json", "-"}, {alone, "OUTBOARD_FAKE_RETAIN=46"}).out);
  EXPECT_EQ(out.at("driver").at("state"), "busy");
  // Free, and not asked about where it is shared.
  for (const std::string& other : {alone, std::string("OUTBOARD_FAKE_RETAIN=46")}) {
    const Finished free = with_driver({"doctor"}, {other});
    EXPECT_TRUE(has(free.out, "[ OK ] driver           2 devices")) << free.out;
  }
}

TEST(DoctorProgram, AnOldDriverIsNamed) {
  const Finished old = with_driver({"doctor"}, {"OUTBOARD_FAKE_CUDA=11020"});
  EXPECT_EQ(old.exit_code, 1) << old.out;
  EXPECT_TRUE(has(old.out, "[FAIL] driver           driver too old: ")) << old.out;
  EXPECT_TRUE(has(old.out, "CUDA 11.7 or newer")) << old.out;
}

TEST(DoctorProgram, JsonHasTheSameChecks) {
  const Finished finished = with_driver({"doctor", "--json", "-"}, {"OUTBOARD_FAKE_CUINIT=803"});
  EXPECT_EQ(finished.exit_code, 1);
  const json out = json::parse(finished.out);
  EXPECT_EQ(out.at("failed"), 1);
  EXPECT_EQ(out.at("checks").at(0).at("name"), "driver");
  EXPECT_EQ(out.at("checks").at(0).at("health"), "fail");
  EXPECT_TRUE(has(out.at("checks").at(0).at("remedy"), "reboot"));
  const auto all = out.at("checks").size();
  EXPECT_EQ(out.at("ok").get<std::size_t>() + out.at("warned").get<std::size_t>() + 1U, all);
}

TEST(DoctorProgram, AFolderOfFilesIsExaminedWithoutThisMachine) {
  const testing::FixtureRoot root;
  fixture::write_machine(root, {});
  root.write("/proc/self/limits", "Max locked memory         65536   65536   bytes\n");
  root.write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  const Finished finished = outboard({"doctor", "--root", root.path()});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(has(finished.out, "[WARN] memory lock      64 KiB may be locked")) << finished.out;
  EXPECT_TRUE(has(finished.out, "[WARN] huge pages       transparent: never"));
  EXPECT_FALSE(has(finished.out, "driver"));
}

/// Runs the program where the kernel refuses `calls`. @return nothing if it knows no filters.
std::optional<Finished> refused(std::vector<long> calls, int error,
                                std::vector<std::string> arguments) {
  std::optional<Finished> finished;
  std::thread([&] {  // the filter stays on the thread, and on what it starts
    if (testing::refuse_calls(calls, error)) finished = outboard(std::move(arguments));
  })
      .join();
  return finished;
}

TEST(RefusedCalls, AreNamedWithErrnoAndTheContainersFlag) {
  for (const int error : {EPERM, ENOSYS}) {
    const std::string number = "(errno " + std::to_string(error) + ")";
    const std::vector<long> policies(std::begin(testing::kMemoryPolicyCalls),
                                     std::end(testing::kMemoryPolicyCalls));
    const auto topo = refused(policies, error, {"topo"});
    if (!topo) OUTBOARD_SKIP("this kernel forbids system call filters");
    EXPECT_EQ(topo->exit_code, 0) << topo->err;
    EXPECT_TRUE(has(topo->out, "memory binding: not permitted: mbind: ")) << topo->out;
    EXPECT_TRUE(has(topo->out, number) && has(topo->out, "--cap-add SYS_NICE")) << topo->out;
    EXPECT_TRUE(has(topo->out, "thread binding: permitted")) << topo->out;
    std::vector<long> all = policies;
    all.push_back(SYS_sched_setaffinity);
    const auto doctor = refused(all, error, {"doctor"});
    ASSERT_TRUE(doctor);
    EXPECT_TRUE(has(doctor->out, "[WARN] thread binding   not permitted:")) << doctor->out;
    EXPECT_TRUE(has(doctor->out, "sched_setaffinity")) << doctor->out;
  }
}

}  // namespace
}  // namespace outboard::cli
