// SPDX-License-Identifier: Apache-2.0
// The first process of a virtual machine whose disks lose what was not flushed
// (tools/power_check.sh).
//   record SAVES DISK=TYPE=SYNCS... MARKS  trains and saves on each disk, a step for each save, and
//                                         writes "DISK STEP" to the disk MARKS when save()
//                                         returned; at the end fills the first disk
//   check DISK TABLE                      TABLE has lines "NUMBER TYPE OFFSET BYTES": file systems
//                                         on DISK as they were when the power went
#include <sys/reboot.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "ckpt/file_system.hpp"
#include "ckpt/reader.hpp"
#include "core/mix64.hpp"
#include "power/guest_disks.hpp"
#include "power/guest_full_disk.hpp"
#include "power/guest_syncs.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard::power_test {
namespace {

using testing::TinyOptions;
using testing::TinyTrainer;

constexpr const char* kRoot = "/mnt/run";

TinyOptions model() {
  TinyOptions options;
  options.device.memory_bytes = std::size_t{4} << 20;
  options.config.max_grad_norm = 1.0;
  options.parameters = {{"wte", 90'000}, {"w", 61'234}, {"v", 20'000}, {"bias", 7}};
  options.digest = false;
  return options;
}

/// The digest after each step, from 1 on: of a run that nothing has interrupted.
class Digests {
 public:
  Digests() : trainer_(model()) { trainer_.start(); }
  std::uint64_t after(std::uint64_t step) {
    while (digests_.size() < step) {
      (void)trainer_.step();
      digests_.push_back(trainer_.engine().state_digest());
    }
    return digests_.at(step - 1);
  }

 private:
  TinyTrainer trainer_;
  std::vector<std::uint64_t> digests_;
};

/// Several files in each checkpoint.
SaveReport save(Engine& engine) {
  return engine.save(kRoot, {.file_bytes = std::uint64_t{1} << 20});
}

/// What other programs do to the same file system, without a sync, while this lives.
class OtherWrites {
 public:
  OtherWrites() : thread_([this] { go_on(); }) {}
  ~OtherWrites() {
    stop_ = true;
    thread_.join();
  }
  OtherWrites(const OtherWrites&) = delete;
  OtherWrites& operator=(const OtherWrites&) = delete;

 private:
  void go_on() {
    for (std::uint64_t i = 0; !stop_; ++i) {
      const std::uint64_t bits = core::mix64(i);
      const std::string name = "/mnt/other" + std::to_string(bits % 7);
      std::ofstream(name) << std::string(bits % 60'000, 'x');
      std::error_code ignored;
      if (bits % 3 == 0) std::filesystem::rename(name, name + "moved", ignored);
      if (bits % 5 == 0) std::filesystem::remove(name, ignored);
      std::this_thread::sleep_for(std::chrono::milliseconds(bits % 16));
    }
  }

  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

struct Recording {
  std::string disk, type, marks;
  int saves = 0;
  bool full = false;  ///< fills the disk at the end
};

void record(const Recording& of) {
  const auto& [disk, type, marks, saves, full] = of;
  const Mounted mounted("/dev/" + disk, type);
  auto others = std::make_optional<OtherWrites>();
  TinyTrainer trainer(model());
  trainer.start();
  for (int step = 1; step <= saves; ++step) {
    (void)trainer.step();
    (void)save(trainer.engine());
    write_mark("/dev/" + marks, disk + " " + std::to_string(step));
  }
  others.reset();
  if (full) survive_a_full_disk(trainer, kRoot);
  std::printf("%s: %d saves on %s\n", disk.c_str(), saves, type.c_str());
}

void record_all(const std::vector<std::string>& arguments) {
  for (std::size_t i = 1; i + 1 < arguments.size(); ++i) {
    std::istringstream words(arguments[i]);
    std::string disk, type, syncs;
    std::getline(words, disk, '=');
    std::getline(words, type, '=');
    std::getline(words, syncs);
    send_small_writes(disk);
    leave_out(syncs_named(syncs));
    record({disk, type, arguments.back(), std::stoi(arguments[0]), i == 1});
    leave_out(Syncs::all);
  }
}

std::size_t names_in_root() {
  std::size_t names = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(kRoot)) ++names;
  return names;
}

/// The newest checkpoint, every byte of it against its checksums. @return its step.
std::uint64_t verified_step() {
  const auto checkpoint = ckpt::Checkpoint::open(ckpt::posix_file_system(), kRoot);
  checkpoint.verify();
  return checkpoint.manifest().counters.steps;
}

void expect(bool held, const std::string& what) {
  if (!held) throw std::runtime_error(what);
}

/// Prints the step of the checkpoint that is there, and whether training goes on from it.
void look_into(Digests& digests) {
  const std::uint64_t step = verified_step();
  const std::size_t names = names_in_root();
  TinyTrainer trainer(model());
  trainer.start();
  (void)trainer.engine().load(kRoot);
  expect(trainer.engine().state_digest() == digests.after(step), "other bits than were saved");
  trainer.continue_at(step);
  (void)trainer.step();
  (void)save(trainer.engine());
  expect(verified_step() == step + 1, "the next save is not the newest checkpoint");
  expect(trainer.engine().state_digest() == digests.after(step + 1), "another next step");
  expect(names_in_root() == 1, "the next save leaves something over");
  std::printf("step %llu, %zu names\n", static_cast<unsigned long long>(step), names);
}

void check_all(const std::string& disk, const std::string& table_disk) {
  std::istringstream table(read_table("/dev/" + table_disk));
  Digests digests;
  std::string number, type;
  std::uint64_t offset = 0, bytes = 0;
  while (table >> number >> type >> offset >> bytes) {
    std::printf("cut %s: ", number.c_str());
    try {
      const DiskPart part("/dev/" + disk, offset, bytes);
      const Mounted mounted(part.device(), type);
      look_into(digests);
    } catch (const std::exception& failure) {
      std::printf("lost: %s\n", failure.what());
    }
  }
}

void run(const std::vector<std::string>& arguments) {
  prepare_machine();
  std::printf("\n");  // behind what the firmware left on the line
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (arguments.at(0) == "record") return record_all(rest);
  if (arguments.at(0) == "check") return check_all(rest.at(0), rest.at(1));
  throw std::runtime_error("record or check, not " + arguments[0]);
}

}  // namespace
}  // namespace outboard::power_test

int main(int count, char** arguments) {
  try {
    outboard::power_test::run({arguments + 1, arguments + count});
    std::printf("GUEST DONE\n");
  } catch (const std::exception& error) {
    std::printf("GUEST FAILED: %s\n", error.what());
  }
  std::fflush(stdout);
  if (getpid() == 1) (void)reboot(RB_POWER_OFF);
  return 0;
}
