// SPDX-License-Identifier: Apache-2.0
/// Which of the reasons keeps a process from using a GPU.
#include "topology/gpu_driver.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "topology/fixture_root.hpp"

namespace outboard::topology {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

DriverAnswer not_loaded() {
  DriverAnswer answer;
  answer.load_error = "libcuda.so.1: cannot open shared object file";
  answer.loaded = false;
  return answer;
}

DriverAnswer failing(int result, const char* name) {
  DriverAnswer answer;
  answer.result = result;
  answer.result_name = name;
  answer.call = "cuInit";
  return answer;
}

DriverAnswer with_devices(std::vector<int> compute_modes) {
  DriverAnswer answer;
  answer.cuda_version = 13000;
  for (const int mode : compute_modes) {
    answer.devices.push_back({"0000:17:00.0", "GPU-1", "a GPU", 1, mode});
  }
  return answer;
}

/// Each of which another process has.
DriverAnswer in_use(std::size_t devices) {
  DriverAnswer answer = with_devices(std::vector<int>(devices, 3));
  for (DriverDevice& device : answer.devices) device.in_use = true;
  return answer;
}

DriverTraces traces_of(std::size_t gpus, const char* module_version = "") {
  DriverTraces traces;
  traces.pci_gpus = gpus;
  traces.module_version = module_version;
  return traces;
}

struct Case {
  const char* name;
  DriverAnswer answer;
  DriverTraces traces;
  DriverState state;
  const char* found;
  const char* remedy;
};

TEST(JudgeDriver, SaysWhichOfTheReasonsItIs) {
  DriverTraces refused = traces_of(2, "550.54.14");
  refused.files = {{"/dev/nvidia-uvm", 0}, {"/dev/nvidiactl", EACCES}};
  DriverTraces hidden = traces_of(2, "550.54.14");
  hidden.visible_set = true;
  DriverTraces withheld = traces_of(1, "550.54.14");
  withheld.files = {{"/dev/nvidia0", EPERM}};
  DriverTraces dead = traces_of(1, "550.54.14");
  dead.files = {{"/dev/nvidia0", EIO}};
  DriverAnswer without_a_call = not_loaded();
  without_a_call.load_error = "libcuda.so.1: undefined symbol: cuDeviceGetUuid";
  without_a_call.loaded = true;
  DriverAnswer of_2020 = with_devices({0});
  of_2020.cuda_version = 11020;
  DriverAnswer one_in_use = in_use(1);
  one_in_use.devices.push_back(with_devices({0}).devices[0]);
  DriverAnswer none_left = in_use(1);
  none_left.devices.push_back(with_devices({2}).devices[0]);
  for (const Case& c : {
           Case{"neither", not_loaded(), traces_of(0), DriverState::no_library,
                "no NVIDIA GPU on the PCI bus", ""},
           Case{"no driver", not_loaded(), traces_of(1), DriverState::no_library,
                "1 NVIDIA GPU on the PCI bus", "install NVIDIA's driver"},
           Case{"container without GPUs", not_loaded(), traces_of(1, "550.54.14"),
                DriverState::no_library, "kernel's driver is loaded", "--gpus all"},
           Case{"no device", failing(100, "CUDA_ERROR_NO_DEVICE"), traces_of(0),
                DriverState::no_device, "no NVIDIA GPU", ""},
           Case{"none counted", DriverAnswer{}, traces_of(1), DriverState::no_device,
                "1 NVIDIA GPU", "dmesg"},
           Case{"hidden", failing(100, "CUDA_ERROR_NO_DEVICE"), hidden, DriverState::no_device,
                "CUDA_VISIBLE_DEVICES is set", "unset CUDA_VISIBLE_DEVICES"},
           Case{"forbidden, shown as none", failing(100, "CUDA_ERROR_NO_DEVICE"), refused,
                DriverState::forbidden, "/dev/nvidiactl: Permission denied (errno 13)",
                "--gpus all"},
           Case{"a container's device rules", failing(100, "CUDA_ERROR_NO_DEVICE"), withheld,
                DriverState::forbidden, "/dev/nvidia0: Operation not permitted (errno 1)",
                "--gpus all"},
           Case{"a dead device is not forbidden", failing(100, "CUDA_ERROR_NO_DEVICE"), dead,
                DriverState::no_device, "1 NVIDIA GPU", "dmesg"},
           Case{"forbidden, shown as an error", failing(304, "CUDA_ERROR_OPERATING_SYSTEM"),
                refused, DriverState::forbidden, "/dev/nvidiactl", "group video"},
           Case{"prohibited", with_devices({2, 2}), traces_of(2), DriverState::forbidden,
                "PROHIBITED", "nvidia-smi -c DEFAULT"},
           Case{"lacks a call", without_a_call, traces_of(1), DriverState::too_old,
                "undefined symbol", "CUDA 11.7 or newer"},
           Case{"old", of_2020, traces_of(1), DriverState::too_old, "CUDA 11.2",
                "CUDA 11.7 or newer"},
           Case{"busy", in_use(2), traces_of(2), DriverState::busy, "EXCLUSIVE_PROCESS",
                "nvidia-smi -c DEFAULT"},
           Case{"busy or prohibited", none_left, traces_of(2), DriverState::busy, "(1 of",
                "nvidia-smi"},
           Case{"one busy", one_in_use, traces_of(2), DriverState::ready,
                "2 devices, CUDA 13.0; 1 in use by another process", ""},
           Case{"mismatch", failing(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), traces_of(1),
                DriverState::failed, "cuInit fails with 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)",
                "reboot"},
           Case{"stub", failing(34, ""), traces_of(1), DriverState::failed, "34", "stub"},
           Case{"fabric", failing(802, ""), traces_of(8), DriverState::failed, "802",
                "fabricmanager"},
           Case{"another", failing(999, "CUDA_ERROR_UNKNOWN"), traces_of(1), DriverState::failed,
                "999 (CUDA_ERROR_UNKNOWN)", "nvidia-smi"},
           Case{"ready", with_devices({0, 3}), traces_of(2, "580.65.06"), DriverState::ready,
                "2 devices, CUDA 13.0, driver 580.65.06", ""},
           Case{"one prohibited", with_devices({2, 0}), traces_of(2), DriverState::ready,
                "2 devices", ""},
       }) {
    SCOPED_TRACE(c.name);
    const DriverReport report = judge_driver(c.answer, c.traces);
    EXPECT_STREQ(name_of(report.state), name_of(c.state));
    EXPECT_TRUE(has(report.found, c.found)) << report.found;
    EXPECT_TRUE(has(report.remedy, c.remedy)) << report.remedy;
    EXPECT_EQ(report.remedy.empty(), std::string(c.remedy).empty()) << report.remedy;
  }
}

TEST(DriverTraces, VersionAndDeviceFilesAreRead) {
  const testing::FixtureRoot root;
  root.write("/proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
             "GCC version:  gcc version 12.2.0\n");
  for (const char* name : {"nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-modeset"}) {
    root.write(std::string("/dev/") + name, "");
  }
  const DriverTraces traces = read_driver_traces(root.path(), 3);
  EXPECT_EQ(traces.module_version, "580.65.06");
  EXPECT_EQ(traces.pci_gpus, 3U);
  ASSERT_EQ(traces.files.size(), 4U);
  EXPECT_EQ(traces.files[0].path, root.path() + "/dev/nvidia-uvm");
  EXPECT_EQ(traces.files[0].error, 0);
  const testing::FixtureRoot empty;
  EXPECT_EQ(read_driver_traces(empty.path(), 0).module_version, "");
}

// The mode of a file may let anybody in where opening it fails all the same.
TEST(DriverTraces, DeviceFilesAreOpenedToFindOut) {
  const testing::FixtureRoot root;
  root.write("/dev/nvidia0/file", "");  // a folder: readable and writable, and not to be opened so
  root.write("/dev/nvidiactl", "");
  const std::vector<DeviceFile> files = read_device_files(root.path());
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].error, EISDIR);
  EXPECT_EQ(files[1].error, 0);
}

TEST(AskDriver, AnswersWithOrWithoutALibrary) {
  const DriverAnswer answer = ask_driver();
  if (!answer.load_error.empty()) {
    EXPECT_TRUE(has(answer.load_error, "libcuda.so.1")) << answer.load_error;
    EXPECT_TRUE(answer.devices.empty());
  } else if (answer.result != 0) {
    EXPECT_FALSE(answer.call.empty());
  }
}

}  // namespace
}  // namespace outboard::topology
