// SPDX-License-Identifier: Apache-2.0
// How fast state is saved and loaded, beside what the medium does for one file, in turns in one
// run: checkpoint_bench FOLDER [millions of parameters, 100] [repetitions, 5]
// `write`: one file of as many bytes, from front to back, synced. `read`: the same back. What was
// written is dropped from the page cache before it is read or loaded, as far as the system does
// that. `digest`: Engine::state_digest(), which both do as well. Also what the files take beside 12
// bytes for each parameter, and how much more memory the process has at its peak while it loads.
// Prints JSON.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "outboard/outboard.hpp"

namespace outboard {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{8} << 20;

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void require(bool right, const std::string& what) {
  if (!right) throw std::runtime_error("cannot " + what);
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : handle_(::open(path.c_str(), flags, 0666)) {
    require(handle_ >= 0, "open " + path);
  }
  ~Descriptor() { ::close(handle_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return handle_; }

 private:
  int handle_;
};

void write_file(const std::string& path, std::uint64_t bytes) {
  const std::vector<char> piece(kPiece, 'x');
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  while (bytes > 0) {
    const auto done = ::write(file.get(), piece.data(), std::min<std::uint64_t>(bytes, kPiece));
    require(done > 0, "write to " + path);
    bytes -= static_cast<std::uint64_t>(done);
  }
  require(::fsync(file.get()) == 0, "sync " + path);
}

void read_file(const std::string& path, std::uint64_t bytes) {
  std::vector<char> piece(kPiece);
  const Descriptor file(path, O_RDONLY);
  std::uint64_t found = 0;
  for (ssize_t done = 1; done > 0; found += static_cast<std::uint64_t>(done)) {
    done = ::read(file.get(), piece.data(), kPiece);
    require(done >= 0, "read " + path);
  }
  require(found == bytes, "find all of " + path);
}

void drop_from_cache(const fs::path& path) {
  const Descriptor file(path.string(), O_RDONLY);
  (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

/// A line of /proc/self/status, in bytes.
std::uint64_t memory_of(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  throw std::runtime_error("cannot find " + key + " in /proc/self/status");
}

/// The most memory that this process has while it works beyond what it has before.
template <class Work>
std::uint64_t memory_rise(const Work& work) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak is what there is now
  const std::uint64_t before = memory_of("VmRSS");
  work();
  const std::uint64_t peak = memory_of("VmHWM");
  return peak > before ? peak - before : 0;
}

/// An engine with so many parameters, in tensors of a real model's size.
class Model {
 public:
  explicit Model(std::uint64_t parameters)
      : elems_(parameters / kTensors),
        gpu_(sim::Options{.memory_bytes = 3 * kTensors * elems_ + (std::size_t{64} << 20)}),
        engine_(gpu_.device()) {
    const GroupId group = engine_.add_group(AdamW{});
    for (std::uint64_t i = 0; i < kTensors; ++i) {
      void* const data = gpu_.allocate(2 * elems_);
      const auto& master =
          masters_.emplace_back(elems_, 0.001F * static_cast<float>(i + 1));  // until commit()
      (void)engine_.add_parameter({.name = "layer" + std::to_string(i),
                                   .dtype = DType::f16,
                                   .elems = elems_,
                                   .data = data,
                                   .group = group,
                                   .master = master});
    }
    engine_.commit();
    masters_.clear();
  }
  Engine& engine() { return engine_; }
  [[nodiscard]] std::uint64_t parameters() const { return kTensors * elems_; }

 private:
  static constexpr std::uint64_t kTensors = 64;
  std::uint64_t elems_;
  sim::Gpu gpu_;
  Engine engine_;
  std::vector<std::vector<float>> masters_;
};

struct Seconds {
  std::vector<double> save, load, write, read, digest;
};

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Of the plain file's rate, the median of all repetitions.
double median_share(const std::vector<double>& plain, const std::vector<double>& ours) {
  std::vector<double> shares;
  for (std::size_t i = 0; i < plain.size(); ++i) shares.push_back(plain[i] / ours[i]);
  return median_of(shares);
}

/// At the best of each: other work on the machine only slows down.
double best_share(const std::vector<double>& plain, const std::vector<double>& ours) {
  return *std::min_element(plain.begin(), plain.end()) /
         *std::min_element(ours.begin(), ours.end());
}

std::string figure(const char* name, const std::vector<double>& seconds, std::uint64_t bytes) {
  const double median = median_of(seconds);
  char text[256];
  std::snprintf(text, sizeof text,
                "  \"%s\": {\"seconds\": %.3f, \"least\": %.3f, \"most\": %.3f, "
                "\"bytes_per_s\": %.4g},\n",
                name, median, *std::min_element(seconds.begin(), seconds.end()),
                *std::max_element(seconds.begin(), seconds.end()),
                static_cast<double>(bytes) / median);
  return text;
}

template <class First, class Second>
void in_turn(int repetition, const First& first, const Second& second) {
  if (repetition % 2 == 0) first();
  second();
  if (repetition % 2 != 0) first();
}

struct Measured {
  std::uint64_t parameters = 0, bytes = 0, load_memory_rise = 0;
  Seconds seconds;
};

/// The plain file and the checkpoint in turns, and each first in every other repetition: a medium
/// that is quick for a while is so for both.
Measured measure(const fs::path& folder, std::uint64_t parameters, int repetitions) {
  Model model(parameters);
  Engine& engine = model.engine();
  const std::string file = (folder / "plain").string();
  const std::string saved = (folder / "run").string();
  const std::uint64_t bytes = engine.checkpoint_bytes();
  Measured out{
      .parameters = model.parameters(), .bytes = bytes, .load_memory_rise = 0, .seconds = {}};
  Seconds& seconds = out.seconds;
  std::uint64_t digest = 0;
  const auto write = [&] { seconds.write.push_back(seconds_of([&] { write_file(file, bytes); })); };
  const auto read = [&] { seconds.read.push_back(seconds_of([&] { read_file(file, bytes); })); };
  const auto save = [&] {
    SaveReport report;
    seconds.save.push_back(seconds_of([&] { report = engine.save(saved); }));
    require(report.bytes == bytes, "foresee the size of a checkpoint");
    for (const auto& entry : fs::directory_iterator(report.folder)) drop_from_cache(entry.path());
  };
  const auto load = [&] {
    const std::uint64_t rise =
        memory_rise([&] { seconds.load.push_back(seconds_of([&] { (void)engine.load(saved); })); });
    out.load_memory_rise = std::max(out.load_memory_rise, rise);
    require(engine.state_digest() == digest, "load what was saved");
  };
  for (int i = 0; i < repetitions; ++i) {
    fs::remove(file);
    fs::remove_all(saved);
    seconds.digest.push_back(seconds_of([&] { digest = engine.state_digest(); }));
    in_turn(i, write, save);
    drop_from_cache(file);
    in_turn(i, read, load);
  }
  return out;
}

void print(const Measured& of, double millions, int repetitions) {
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "{\n  \"command\": \"checkpoint_bench FOLDER %g %d\",\n  \"cores\": %u,\n"
      "  \"parameters\": %llu,\n  \"bytes\": %llu,\n  \"bytes_beyond_12_each\": %llu,\n"
      "  \"load_memory_rise_bytes\": %llu,\n",
      millions, repetitions, std::thread::hardware_concurrency(), number(of.parameters),
      number(of.bytes), number(of.bytes - 12 * of.parameters), number(of.load_memory_rise));
  const Seconds& seconds = of.seconds;
  std::printf("%s%s%s%s%s", figure("write", seconds.write, of.bytes).c_str(),
              figure("save", seconds.save, of.bytes).c_str(),
              figure("read", seconds.read, of.bytes).c_str(),
              figure("load", seconds.load, of.bytes).c_str(),
              figure("digest", seconds.digest, of.bytes).c_str());
  std::printf(
      "  \"save_share_of_write\": {\"median\": %.2f, \"best\": %.2f},\n"
      "  \"load_share_of_read\": {\"median\": %.2f, \"best\": %.2f}\n}\n",
      median_share(seconds.write, seconds.save), best_share(seconds.write, seconds.save),
      median_share(seconds.read, seconds.load), best_share(seconds.read, seconds.load));
}

int run(int count, char** arguments) {
  const double millions = count > 2 ? std::atof(arguments[2]) : 100.0;
  const int repetitions = count > 3 ? std::atoi(arguments[3]) : 5;
  if (count < 2 || !(millions >= 0.1 && millions <= 1e5) || repetitions < 1) {
    std::fprintf(stderr, "checkpoint_bench FOLDER [millions of parameters] [repetitions]\n");
    return 2;
  }
  const fs::path folder = fs::path(arguments[1]) / "checkpoint_bench";
  fs::create_directories(folder);
  const auto parameters = static_cast<std::uint64_t>(millions * 1e6);
  const Measured measured = measure(folder, parameters, repetitions);
  fs::remove_all(folder);
  print(measured, millions, repetitions);
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
