// SPDX-License-Identifier: Apache-2.0
// Saves beside training on real threads: meant to run under ThreadSanitizer too.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/drawn_options.hpp"
#include "support/temporary_folder.hpp"

namespace outboard {
namespace {

using namespace testing;

constexpr std::uint64_t kSteps = 24;

TinyOptions threaded(Schedule schedule, Placement placement) {
  TinyOptions options = small_model();
  options.device.mode = sim::Mode::threads;
  options.config.host.threads_per_node = 2;
  options.config.schedule = schedule;
  options.config.placement = placement;
  if (placement == Placement::fraction) {
    options.config.device_fraction = nearest_split(options, 0.5).fraction;
  }
  options.config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  options.config.max_grad_norm = 0.0;
  return options;
}

/// Digest of the state after each step, from before the first on.
std::vector<std::uint64_t> digests_of(TinyOptions options) {
  TinyTrainer trainer(options);
  trainer.start();
  std::vector<std::uint64_t> digests = {trainer.engine().state_digest()};
  for (std::uint64_t i = 0; i < kSteps; ++i) digests.push_back(trainer.step().digest);
  return digests;
}

class AsyncSaveThreads : public ::testing::TestWithParam<std::tuple<Schedule, Placement>> {};

TEST_P(AsyncSaveThreads, HoldTheStateOfTheirCalls) {
  const auto [schedule, placement] = GetParam();
  const std::vector<std::uint64_t> expected = digests_of(threaded(schedule, placement));
  for (const std::size_t snapshot :
       {std::size_t{0}, std::size_t{128} << 10, std::size_t{64} << 20}) {
    TinyOptions options = threaded(schedule, placement);
    options.config.snapshot_bytes = snapshot;
    options.digest = false;
    const TemporaryFolder folder;
    TinyTrainer trainer(options);
    trainer.start();
    std::optional<SaveTicket> ticket;
    std::uint64_t saved = 0;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      if (ticket && ticket->done()) {
        EXPECT_EQ(ticket->wait().digest, expected.at(saved)) << "saved after " << saved;
        ticket.reset();
      }
      if (!ticket) {
        saved = step;
        ticket.emplace(trainer.engine().save_async(folder.path("run")));
      }
      trainer.step();
    }
    trainer.engine().save(folder.path("run"), {.keep_last = 0});
    EXPECT_EQ(trainer.engine().state_digest(), expected.back());
    EXPECT_EQ(ticket->wait().digest, expected.at(saved));
    for (const std::string& checkpoint : list_checkpoints(folder.path("run"))) {
      TinyTrainer loaded(threaded(Schedule::exact, Placement::host));
      loaded.start();
      // Checks the digest too.
      const std::uint64_t steps = loaded.engine().load(checkpoint, {.strict = false}).steps;
      EXPECT_EQ(loaded.engine().state_digest(), expected.at(steps));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, AsyncSaveThreads,
                         ::testing::Values(std::tuple(Schedule::exact, Placement::host),
                                           std::tuple(Schedule::open, Placement::host),
                                           std::tuple(Schedule::serial, Placement::host),
                                           std::tuple(Schedule::exact, Placement::fraction),
                                           std::tuple(Schedule::open, Placement::fraction),
                                           std::tuple(Schedule::blocking,
                                                      Placement::device_resident),
                                           std::tuple(Schedule::exact, Placement::device_streamed),
                                           std::tuple(Schedule::open, Placement::device_streamed)),
                         [](const auto& tested) {
                           return std::string(name_of(std::get<0>(tested.param))) + "_" +
                                  std::to_string(static_cast<int>(std::get<1>(tested.param)));
                         });

TEST(AsyncSaveOnThreads, EndsWithItsEngine) {
  for (int i = 0; i < 20; ++i) {
    const TemporaryFolder folder;
    std::optional<SaveTicket> ticket;
    {
      TinyTrainer trainer(threaded(Schedule::exact, Placement::host));
      trainer.start();
      trainer.run(1);
      ticket.emplace(trainer.engine().save_async(folder.path("run")));
      if (i % 2 == 0) trainer.run(1);
    }
    EXPECT_TRUE(ticket->done());
    verify_checkpoint(ticket->wait().folder);
  }
}

}  // namespace
}  // namespace outboard
