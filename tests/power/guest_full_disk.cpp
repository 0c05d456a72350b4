// SPDX-License-Identifier: Apache-2.0
#include "power/guest_full_disk.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

namespace outboard::power_test {
namespace {

using testing::TinyTrainer;

constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 20;

void require(bool held, const std::string& what) {
  if (!held) throw std::runtime_error("full disk: " + what);
}

/// Takes all room that there is, and all that comes, while this lives.
class Filler {
 public:
  explicit Filler(const std::string& path)
      : path_(path), handle_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)) {
    require(handle_ >= 0, "open " + path);
  }
  ~Filler() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    ::close(handle_);
    std::filesystem::remove(path_);
  }
  Filler(const Filler&) = delete;
  Filler& operator=(const Filler&) = delete;

  void fill() const {
    const std::vector<char> piece(std::size_t{64} << 10, 'x');
    for (std::size_t size = piece.size(); size > 0 && !stop_;) {
      if (::write(handle_, piece.data(), size) <= 0) size /= 2;
    }
  }
  void fill_meanwhile() {
    thread_ = std::thread([this] { fill(); });
  }

 private:
  std::string path_;
  int handle_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

/// Whether it was refused; as nothing else than no_space.
bool refused(TinyTrainer& trainer, const std::string& root, bool& before_writing) {
  try {
    (void)trainer.engine().save(root, {.file_bytes = kFileBytes});
    return false;
  } catch (const Error& failure) {
    const std::string_view text = failure.what();
    require(failure.code() == ErrorCode::no_space, "another error: " + std::string(text));
    before_writing = text.find("Nothing was written") != std::string_view::npos;
    return true;
  }
}

}  // namespace

void survive_a_full_disk(TinyTrainer& trainer, const std::string& root) {
  const std::string other = root + "/../filler";
  const std::uint64_t saved = trainer.engine().state_digest();
  bool before_writing = false;
  {
    const Filler filler(other);
    filler.fill();
    (void)trainer.step();
    require(refused(trainer, root, before_writing) && before_writing, "not foreseen");
    (void)trainer.step();
    (void)trainer.engine().load(root);
    require(trainer.engine().state_digest() == saved, "the checkpoint before is another");
  }
  int late = 0;
  for (int i = 0; i < 8; ++i) {
    Filler filler(other);
    filler.fill_meanwhile();
    for (int attempt = 0; attempt < 100 && !refused(trainer, root, before_writing); ++attempt) {
    }
    late += before_writing ? 0 : 1;
    (void)trainer.engine().load(root);
    require(trainer.engine().state_digest() == saved, "the newest checkpoint is another");
  }
  (void)trainer.step();
  (void)trainer.engine().save(root, {.file_bytes = kFileBytes});
  std::printf("full disk: 9 saves refused, %d of them while they wrote\n", late);
}

}  // namespace outboard::power_test
