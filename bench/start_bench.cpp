// SPDX-License-Identifier: Apache-2.0
// How long host memory takes to prepare, with one thread and with several, in turns in one run:
//   start_bench [GiB of state, 4] [threads, all allowed cores] [repetitions, 5]
// `arena`: one arena brought in by the threads, then locked, as the software GPU pins. `commit`: an
// engine with so much state, from its parameters to its first step; weights are checked and copied
// by the software GPU's own threads. Prints JSON.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "core/round_up.hpp"
#include "device/backend.hpp"
#include "exec/executor.hpp"
#include "memory/huge_pages.hpp"
#include "memory/pinned_region.hpp"
#include "outboard/outboard.hpp"

namespace outboard {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Brings memory in on the threads of one node, and waits.
class Touch {
 public:
  explicit Touch(exec::Executor& executor) : executor_(executor) {}
  bool operator()(std::span<const memory::FreshMemory> fresh) {
    for (const memory::FreshMemory& one : fresh) {
      memory_ = one.bytes;
      std::unique_lock lock(mutex_);
      done_ = false;
      exec::Task task;
      task.parts = executor_.threads(0);
      task.body = &Touch::part;
      task.done = &Touch::finished;
      task.context = this;
      executor_.post(task);
      changed_.wait(lock, [&] { return done_; });
    }
    return true;
  }

 private:
  static void part(void* self, std::uint64_t, std::uint32_t index) noexcept {
    const Touch& touch = *static_cast<Touch*>(self);
    const std::size_t parts = touch.executor_.threads(0);
    const std::size_t each =
        core::round_up((touch.memory_.size() + parts - 1) / parts, memory::kHugePage);
    const std::size_t from = std::min(touch.memory_.size(), each * index);
    (void)memory::bring_in(
        touch.memory_.subspan(from, std::min(each, touch.memory_.size() - from)));
  }
  static void finished(void* self, std::uint64_t) noexcept {
    Touch& touch = *static_cast<Touch*>(self);
    const std::lock_guard lock(touch.mutex_);
    touch.done_ = true;
    touch.changed_.notify_one();
  }

  exec::Executor& executor_;
  std::span<std::byte> memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

double arena_seconds(std::size_t bytes, std::uint32_t threads) {
  topology::Machine machine = topology::discover();
  machine.nodes.resize(1);
  const auto executor = exec::make_default_executor(machine, {threads});
  const sim::Gpu gpu(sim::Options{.memory_bytes = 4096});
  const auto start = std::chrono::steady_clock::now();
  memory::NumaArena arena(machine, 0, bytes, "benchmark");
  const memory::FreshMemory fresh = arena.fresh();
  Touch touch(*executor);
  (void)touch({&fresh, 1});
  const memory::PinnedRegion region(*gpu.device().backend(), std::move(arena));
  const double seconds = seconds_since(start);
  if (!region.pinned()) std::fprintf(stderr, "not locked: the limit on locked memory is too low\n");
  return seconds;
}

double commit_seconds(std::size_t state_bytes, std::uint32_t threads) {
  const std::uint64_t elems = state_bytes / 12;
  sim::Gpu gpu(sim::Options{.memory_bytes = 2 * elems + (std::size_t{16} << 20)});
  void* const weights = gpu.allocate(2 * elems);
  const NativeStream stream = gpu.create_stream("weights");
  gpu.launch(stream, sim::Duration{0}, [weights, elems](sim::KernelView& view) {
    std::ranges::fill(view.as<std::uint16_t>(weights, elems), std::uint16_t{0x3C00});
  });
  gpu.synchronize();
  gpu.destroy_stream(stream);
  Config config;
  config.host.threads_per_node = threads;
  Engine engine(gpu.device(), config);
  const GroupId group = engine.add_group(AdamW{});
  (void)engine.add_parameter(
      {.name = "all", .dtype = DType::f16, .elems = elems, .data = weights, .group = group});
  const auto start = std::chrono::steady_clock::now();
  engine.commit();
  return seconds_since(start);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Memory that a virtual machine has not used for a while is brought in by its host, which can take
/// ten times as long as the fault itself. So the system's free memory is used just before each run.
void warm(std::size_t bytes) {
  const topology::Machine machine = topology::discover();
  const memory::NumaArena arena(machine, 0, bytes, "warming");
  (void)memory::bring_in(arena.fresh().bytes);
}

using Measure = double (*)(std::size_t, std::uint32_t);

/// Of the process and all its threads.
struct Cost {
  double cpu_seconds = 0.0;  ///< user and system
  double faults = 0.0;       ///< pages brought in, each of 4 KiB or 2 MiB
};
Cost cost_so_far() {
  rusage usage{};
  (void)getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime), static_cast<double>(usage.ru_minflt)};
}

/// Of one number of threads, round after round.
struct Runs {
  std::uint32_t threads = 1;
  std::vector<double> wall, cpu, faults;

  void add(Measure one, std::size_t bytes) {
    warm(bytes + bytes / 2);
    const Cost before = cost_so_far();
    wall.push_back(one(bytes, threads));
    const Cost after = cost_so_far();
    cpu.push_back(after.cpu_seconds - before.cpu_seconds);
    faults.push_back(after.faults - before.faults);
  }
  [[nodiscard]] std::string json() const {
    return "{\"threads\": " + std::to_string(threads) + ", \"seconds\": " + list(wall) +
           ", \"cpu_seconds\": " + list(cpu) + ", \"faults\": " + list(faults, 0) + "}";
  }
  static std::string list(const std::vector<double>& values, int decimals = 3) {
    std::string text;
    for (const double value : values) {
      char number[32];
      std::snprintf(number, sizeof number, "%s%.*f", text.empty() ? "" : ", ", decimals, value);
      text += number;
    }
    return "[" + text + "]";
  }
};

/// Who goes first changes from round to round.
std::string measure(Measure one, std::size_t bytes, std::uint32_t threads, int repetitions) {
  Runs alone{1, {}, {}, {}};
  Runs together{threads, {}, {}, {}};
  for (int i = 0; i < repetitions; ++i) {
    (i % 2 == 0 ? alone : together).add(one, bytes);
    (i % 2 == 0 ? together : alone).add(one, bytes);
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < alone.wall.size(); ++i) {
    ratios.push_back(alone.wall[i] / together.wall[i]);
  }
  char medians[96];
  std::snprintf(medians, sizeof medians,
                "\"median_ratio\": %.2f, \"ratio_of_medians\": %.2f, \"ratios\": ", median(ratios),
                median(alone.wall) / median(together.wall));
  return "{" + std::string(medians) + Runs::list(ratios) + ",\n    \"runs\": [" + alone.json() +
         ",\n             " + together.json() + "]}";
}

int run(int count, char** arguments) {
  const double gib = count > 1 ? std::atof(arguments[1]) : 4.0;
  const topology::Machine machine = topology::discover();
  const int cores = static_cast<int>(machine.nodes.front().cores.size());
  const int threads = count > 2 ? std::atoi(arguments[2]) : cores;
  const int repetitions = count > 3 ? std::atoi(arguments[3]) : 5;
  if (!(gib > 0.0 && gib <= 4096.0) || threads < 1 || threads > 4096 || repetitions < 1) {
    std::fprintf(stderr, "start_bench [GiB of state] [threads] [repetitions]: above zero each\n");
    return 2;
  }
  const auto bytes = static_cast<std::size_t>(gib * 1073741824.0);
  const auto many = static_cast<std::uint32_t>(threads);
  const std::string arena = measure(arena_seconds, bytes, many, repetitions);
  const std::string commit = measure(commit_seconds, bytes, many, repetitions);
  std::printf(
      "{\n  \"command\": \"start_bench %g %d %d\",\n  \"bytes\": %zu,\n"
      "  \"cores\": %d,\n  \"threads\": %d,\n  \"arena\": %s,\n  \"commit\": %s\n}\n",
      gib, threads, repetitions, bytes, cores, threads, arena.c_str(), commit.c_str());
  return 0;
}

}  // namespace
}  // namespace outboard

int main(int count, char** arguments) {
  try {
    return outboard::run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
