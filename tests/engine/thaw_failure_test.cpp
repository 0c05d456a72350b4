// SPDX-License-Identifier: Apache-2.0
/// Device calls that fail in a commit() that takes in parameters, one after the other, at once or
/// when they run: a call that was refused leaves the engine as it was, a lost device is named.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/flavours.hpp"
#include "engine/late_parameters.hpp"
#include "support/expect_error.hpp"

namespace outboard::testing {
namespace {

constexpr sim::Call kCalls[] = {
    sim::Call::allocate,       sim::Call::register_host, sim::Call::create_stream,
    sim::Call::create_event,   sim::Call::record,        sim::Call::wait_event,
    sim::Call::notify,         sim::Call::copy_to_host,  sim::Call::copy_to_device,
    sim::Call::copy_on_device, sim::Call::kernel,
};

const Growths kGrowths = {{0, 2}, {1, 5}};
constexpr std::uint64_t kSteps = 3;

TinyOptions growing_model(const Flavour& flavour) {
  TinyOptions options;
  options.device = flavour.device();
  options.device.memory_bytes = std::size_t{1} << 20;
  Config config;
  config.loss_scaling = {.dynamic = false, .initial_scale = 64.0};
  options.config = flavour.apply(config);
  options.rules = {{AdamW{.lr = 1e-2}}, {Lamb{.lr = 1e-2}, {.ema_decay = 0.9}}};
  const std::array<std::uint64_t, 5> sizes = {8192, 8192, 8192, 8192, 0};
  add_parameters(options, sizes);
  options.parameters[3].initial.assign(8192, 0.25F);
  options.parameters[3].give_master = true;
  options.max_steps = kSteps;
  return options;
}

std::vector<Flavour> ways() {
  std::vector<Flavour> out = {Flavour{.name = "host"}};
  const auto add = [&](const char* name) -> Flavour& {
    out.push_back(Flavour{.name = name});
    return out.back();
  };
  add("resident").placement = Placement::device_resident;
  Flavour& half = add("half");
  half.placement = Placement::fraction;
  half.device_fraction = 0.5;
  add("automatic").placement = Placement::automatic;
  add("bounce").pinned_slots = 2;
  Flavour& sums = add("half_sums");
  sums.placement = Placement::fraction;
  sums.device_fraction = 0.5;
  sums.accumulate = Accumulate::host;
  Flavour& open = add("half_open");
  open.placement = Placement::fraction;
  open.device_fraction = 0.5;
  open.schedule = Schedule::open;
  add("threads").mode = sim::Mode::threads;
  Flavour& threads = add("threads_half");
  threads.placement = Placement::fraction;
  threads.device_fraction = 0.5;
  threads.mode = sim::Mode::threads;
  return out;
}

struct Case {
  Flavour flavour;
  sim::Call call;
  bool at_call;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.flavour.name << "_" << sim::to_string(c.call)
             << (c.at_call ? "_at_call" : "_when_run");
}
std::vector<Case> cases() {
  std::vector<Case> out;
  for (const Flavour& flavour : ways()) {
    for (const sim::Call call : kCalls) {
      out.push_back({flavour, call, true});
      out.push_back({flavour, call, false});
    }
  }
  return out;
}

class ThawFaults : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Each, ThawFaults, ::testing::ValuesIn(cases()), [](const auto& test) {
  std::ostringstream name;
  name << test.param;
  return name.str();
});

std::string holdings(const sim::Counters& c) {
  return std::to_string(c.live_allocations) + " allocations, " + std::to_string(c.live_streams) +
         " streams, " + std::to_string(c.live_events) + " events, " +
         std::to_string(c.live_registrations) + " registrations";
}

enum class Met : std::uint8_t { before, in_commit, after, never };

/// Where the fault is met. If it is a refused call in the second commit(), that one is tried again,
/// and the whole run has the reference's bits.
Met run_with_fault(const TinyOptions& options, bool at_call, const Trajectory& reference) {
  std::optional<TinyTrainer> trainer;
  Trajectory seen;
  const auto step = [&] { seen.push_back(take_step(*trainer, false)); };
  if (caught([&] {
        trainer.emplace(options).start_with(2);
        step();
        trainer->engine().synchronize();
        trainer->gpu().synchronize();
        trainer->add_parameters(5);
      })) {
    return Met::before;
  }
  const sim::Counters before = trainer->gpu().counters();
  const std::size_t used = trainer->gpu().memory().used_bytes;
  const auto error = caught([&] { trainer->commit(); });
  if (error) {
    EXPECT_EQ(error->code(), ErrorCode::device_failure) << error->what();
    EXPECT_NE(std::string(error->what()).find(to_string(options.device.faults[0].call)),
              std::string::npos)
        << error->what();
    if (!at_call) {
      EXPECT_TRUE(caught([&] { trainer->engine().synchronize(); })) << "the device is lost";
      return Met::in_commit;
    }
    EXPECT_NE(std::string(error->what()).find("not committed: 'w2', 'w3', 'w4'"), std::string::npos)
        << error->what();
    EXPECT_EQ(holdings(trainer->gpu().counters()), holdings(before));
    EXPECT_EQ(trainer->gpu().memory().used_bytes, used);
    trainer->commit();
  }
  if (caught([&] {
        step();
        step();
        seen.back().digest = trainer->engine().state_digest();
        for (std::uint64_t s = 0; s < kSteps; ++s) seen[s].loss = trainer->loss(s);
      })) {
    EXPECT_FALSE(error) << "and the second commit() left it broken";
    return Met::after;
  }
  EXPECT_EQ(first_difference(reference, seen), "");
  return error ? Met::in_commit : Met::never;
}

TEST_P(ThawFaults, LeaveTheEngineAsItWasOrAreNamed) {
  const Case& c = GetParam();
  TinyOptions options = growing_model(c.flavour);
  TinyOptions plain = all_from_the_start(options, kGrowths);
  plain.config.placement = Placement::host;
  plain.config.device_fraction = 0.0;
  const Trajectory reference = run_trajectory(plain, {.steps = kSteps});
  std::uint64_t in_commit = 0;
  Met met = Met::before;
  for (std::uint64_t nth = 1; nth < 1000 && (met == Met::before || met == Met::in_commit); ++nth) {
    SCOPED_TRACE("nth " + std::to_string(nth));
    options.device.faults = {{.call = c.call, .nth = nth, .at_call = c.at_call}};
    met = run_with_fault(options, c.at_call, reference);
    in_commit += met == Met::in_commit ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_TRUE(met == Met::after || met == Met::never) << "more calls than this test tries";
  RecordProperty("in_commit", static_cast<int>(in_commit));
  const bool has_some = c.call == sim::Call::allocate || c.call == sim::Call::record ||
                        c.call == sim::Call::kernel || c.call == sim::Call::create_stream;
  // Creating fails at once only: there is nothing that runs.
  const bool runs = c.call == sim::Call::record || c.call == sim::Call::kernel;
  if (has_some && (c.at_call || runs)) {
    EXPECT_GT(in_commit, 0U);
  }
}

}  // namespace
}  // namespace outboard::testing
