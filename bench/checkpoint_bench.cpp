// SPDX-License-Identifier: Apache-2.0
// How fast state is saved and loaded, beside what the medium does for one file, in turns in one
// run: checkpoint_bench FOLDER [GiB of state, 1] [repetitions, 5]
// `write`: one file of as many bytes, from front to back, synced. `read`: the same back. What was
// written is dropped from the page cache before it is read or loaded, as far as the system does
// that. Prints JSON.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
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

/// An engine with so much state, in tensors of a real model's size.
class Model {
 public:
  explicit Model(std::uint64_t state_bytes)
      : elems_(state_bytes / 12 / kTensors),
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

 private:
  static constexpr std::uint64_t kTensors = 64;
  std::uint64_t elems_;
  sim::Gpu gpu_;
  Engine engine_;
  std::vector<std::vector<float>> masters_;
};

struct Seconds {
  std::vector<double> save, load, write, read;
};

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Of the plain file's rate, at the best of each: other work on the machine only slows down.
double share(const std::vector<double>& plain, const std::vector<double>& ours) {
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

int run(int count, char** arguments) {
  const double gib = count > 2 ? std::atof(arguments[2]) : 1.0;
  const int repetitions = count > 3 ? std::atoi(arguments[3]) : 5;
  if (count < 2 || !(gib > 0.0 && gib <= 1024.0) || repetitions < 1) {
    std::fprintf(stderr, "checkpoint_bench FOLDER [GiB of state] [repetitions]\n");
    return 2;
  }
  const fs::path folder = fs::path(arguments[1]) / "checkpoint_bench";
  fs::create_directories(folder);
  Model model(static_cast<std::uint64_t>(gib * 1073741824.0));
  const std::uint64_t digest = model.engine().state_digest();
  const std::string file = (folder / "plain").string();
  const std::string saved = (folder / "run").string();
  const std::uint64_t bytes = model.engine().checkpoint_bytes();
  Seconds seconds;
  for (int i = 0; i < repetitions; ++i) {
    fs::remove(file);
    fs::remove_all(saved);
    seconds.write.push_back(seconds_of([&] { write_file(file, bytes); }));
    SaveReport report;
    seconds.save.push_back(seconds_of([&] { report = model.engine().save(saved); }));
    drop_from_cache(file);
    for (const auto& entry : fs::directory_iterator(report.folder)) drop_from_cache(entry.path());
    seconds.read.push_back(seconds_of([&] { read_file(file, bytes); }));
    seconds.load.push_back(seconds_of([&] { (void)model.engine().load(saved); }));
    require(model.engine().state_digest() == digest, "load what was saved");
  }
  fs::remove_all(folder);
  std::printf(
      "{\n  \"command\": \"checkpoint_bench FOLDER %g %d\",\n  \"bytes\": %llu,\n"
      "  \"cores\": %u,\n%s%s%s%s  \"save_share_of_write\": %.2f,\n"
      "  \"load_share_of_read\": %.2f\n}\n",
      gib, repetitions, static_cast<unsigned long long>(bytes), std::thread::hardware_concurrency(),
      figure("write", seconds.write, bytes).c_str(), figure("save", seconds.save, bytes).c_str(),
      figure("read", seconds.read, bytes).c_str(), figure("load", seconds.load, bytes).c_str(),
      share(seconds.write, seconds.save), share(seconds.read, seconds.load));
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
