// SPDX-License-Identifier: Apache-2.0
// Checkpoints between processes: what one saves another goes on with, and several share the
// reading.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ckpt/file_system.hpp"
#include "ckpt/reader.hpp"
#include "support/temporary_folder.hpp"
#include "support/tiny_trainer.hpp"

namespace outboard {
namespace {

using namespace testing;

/// A process that does one thing, then lives on until it is let go.
class Child {
 public:
  /// Fork before this process has threads.
  explicit Child(const std::function<void()>& work) {
    if (::pipe(said_.data()) != 0 || ::pipe(heard_.data()) != 0) throw std::runtime_error("pipe");
    id_ = ::fork();
    if (id_ == 0) run(work);
  }
  ~Child() {
    for (const int handle : {said_[0], said_[1], heard_[0], heard_[1]}) ::close(handle);
    if (id_ > 0) (void)::waitpid(id_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Waits for its work. @return whether it succeeded.
  [[nodiscard]] bool succeeded() {
    char answer = 'n';
    return ::read(said_[0], &answer, 1) == 1 && answer == 'y';
  }

 private:
  [[noreturn]] void run(const std::function<void()>& work) {
    char answer = 'y';
    ::close(heard_[1]);
    try {
      work();
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "%s\n", failure.what());
      answer = 'n';
    }
    (void)!::write(said_[1], &answer, 1);
    (void)!::read(heard_[0], &answer, 1);  // until the other end is closed
    ::_exit(0);
  }

  std::array<int, 2> said_{}, heard_{};
  pid_t id_ = -1;
};

TinyOptions three_micro_batches(DType dtype) {
  TinyOptions options;
  options.device = virtual_device();
  options.config.host.synthetic_topology = "numa:2 core:2 pu:1";
  options.config.accumulate = Accumulate::host;
  options.config.accumulation = options.passes = 3;
  options.config.loss_scaling = {.initial_scale = 256.0, .growth_interval = 4};
  options.config.max_grad_norm = 1.0;
  options.parameters = {{"a", 9000}, {"b", 70'001}, {"c", 5}};
  for (TinyParameter& parameter : options.parameters) parameter.dtype = dtype;
  const std::uint32_t infinite = dtype == DType::f16    ? 0x7C00U
                                 : dtype == DType::bf16 ? 0x7F80U
                                                        : 0x7F800000U;
  options.injected = {{.step = 3, .parameter = 1, .element = 60'000, .bits = infinite}};
  return options;
}

/// Steps with a learning rate of each one's own.
void train(TinyTrainer& trainer, std::uint64_t until) {
  while (trainer.steps() < until) {
    const double lr = 1e-2 / static_cast<double>(1 + trainer.steps());
    trainer.engine().set_group(trainer.group(0), AdamW{.lr = lr, .weight_decay = 0.1});
    trainer.step();
  }
}

class CheckpointProcesses : public ::testing::TestWithParam<DType> {};

/// Five steps here and five there are ten, with an overflow before and a growth of the loss scale
/// after; the process that saved lives on while the other loads.
TEST_P(CheckpointProcesses, GoOnToTheBit) {
  const TemporaryFolder folder;
  const TinyOptions options = three_micro_batches(GetParam());
  Child saver([&] {
    TinyTrainer trainer(options);
    trainer.start();
    train(trainer, 5);
    trainer.engine().save(folder.path("run"));
  });
  ASSERT_TRUE(saver.succeeded());
  TinyTrainer straight(options);
  straight.start();
  train(straight, 10);
  TinyTrainer loaded(options);
  loaded.start();
  EXPECT_EQ(loaded.engine().load(folder.path("run")).steps, 5U);
  loaded.continue_at(5);
  train(loaded, 10);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(loaded.state(i) == straight.state(i)) << i;
  EXPECT_EQ(loaded.engine().state_digest(), straight.engine().state_digest());
  EXPECT_EQ(loaded.engine().loss_scale(), straight.engine().loss_scale());
  const StepStats ours = loaded.engine().stats(), theirs = straight.engine().stats();
  EXPECT_EQ(ours.steps_skipped, theirs.steps_skipped);
  EXPECT_EQ(theirs.steps_skipped, 1U);
  EXPECT_EQ(ours.steps_applied, theirs.steps_applied);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CheckpointProcesses,
                         ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& tested) {
                           return tested.param == DType::f32    ? "f32"
                                  : tested.param == DType::bf16 ? "bf16"
                                                                : "f16";
                         });

// --- a part for each process ---------------------------------------------------------------------

constexpr std::uint64_t kWorkers = 4;

/// Bytes that this process has read so far, by any call.
std::uint64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  for (std::string word; io >> word;) {
    std::uint64_t value = 0;
    if (word == "rchar:" && io >> value) return value;
  }
  throw std::runtime_error("no rchar in /proc/self/io");
}

/// One worker's part of every stream: read alone, and right.
void read_part(const std::string& root, std::uint64_t worker,
               const std::vector<std::vector<float>>& masters) {
  const std::uint64_t before = bytes_read();
  const auto checkpoint = ckpt::Checkpoint::open(ckpt::posix_file_system(), root);
  std::uint64_t share = 0;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    const std::uint64_t elems = masters[i].size();
    const std::uint64_t first = elems * worker / kWorkers;
    std::vector<float> part(elems * (worker + 1) / kWorkers - first);
    for (std::size_t k = 0; k < 3; ++k) {
      checkpoint.read_range(i, k, first, part);
      share += part.size() * sizeof(float);
      if (k > 0) continue;
      const auto expected = std::span(masters[i]).subspan(first, part.size());
      if (!std::ranges::equal(part, expected)) throw std::runtime_error("other elements");
    }
  }
  const std::uint64_t read = bytes_read() - before;
  if (read > share + share / 20) {
    throw std::runtime_error(std::to_string(read) + " bytes read for a share of " +
                             std::to_string(share));
  }
}

TEST(CheckpointWorkers, ReadTheirOwnPartOnly) {
  TinyOptions options;
  options.device = virtual_device();
  options.config.host.synthetic_topology = "numa:1 core:1 pu:1";
  options.parameters = {{"a", 200'001}, {"b", 100'000}};
  TinyTrainer trainer(options);
  trainer.start();
  trainer.step();
  const TemporaryFolder folder;
  trainer.engine().save(folder.path("run"));
  std::vector<std::vector<float>> masters;
  for (std::uint32_t i = 0; i < 2; ++i) masters.push_back(trainer.state(i).p);
  for (std::uint64_t worker = 0; worker < kWorkers; ++worker) {
    Child child([&] { read_part(folder.path("run"), worker, masters); });
    EXPECT_TRUE(child.succeeded()) << "worker " << worker;
  }
}

}  // namespace
}  // namespace outboard
