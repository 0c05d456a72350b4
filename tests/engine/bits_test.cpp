// SPDX-License-Identifier: Apache-2.0
// The trajectory depends on inputs and hyper-parameters only: threads, nodes, bucket size,
// instruction set, schedule, staging and placement never change a bit. The configurations form a
// covering array: every two values of every two axes meet in at least one row.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/splits.hpp"
#include "engine/trajectory.hpp"
#include "simd/target.hpp"

namespace outboard::testing {
namespace {

constexpr std::uint64_t kSteps = 9;
constexpr std::uint64_t kOverflowStep = 4;

TinyOptions base_options() {
  TinyOptions options;
  options.config.max_grad_norm = 1.0;
  options.config.loss_scaling = {.initial_scale = 64.0, .growth_interval = 3};
  options.config.bucket_bytes = std::size_t{1} << 20;
  options.config.host.threads_per_node = 1;
  options.config.host.synthetic_topology = "numa:1 core:2 pu:1";
  options.groups = {AdamW{.lr = 1e-2, .weight_decay = 0.1}, AdamW{.lr = 3e-3, .beta2 = 0.95}};
  const std::array<std::uint64_t, 8> sizes = {4097, 1, 100003, 7, 1000003, 4096, 31, 8191};
  add_parameters(options, sizes);
  options.injected = {{.step = kOverflowStep, .parameter = 4, .element = 777777}};
  // One parameter sits out every third step.
  options.has_gradient = [](std::uint64_t step, std::uint32_t i) {
    return i != 5 || step % 3 != 1;
  };
  return options;
}

std::uint64_t total_elems(const TinyOptions& options) {
  std::uint64_t sum = 0;
  for (const TinyParameter& parameter : options.parameters) sum += parameter.elems;
  return sum;
}

struct Choice {
  std::string name;
  std::function<void(TinyOptions&)> apply;
  std::string simd;  ///< target to force
};
struct Axis {
  std::string name;
  std::vector<Choice> choices;  ///< the first is the reference's
};

std::vector<Axis> staging_axes() {
  const auto bucket = [](std::size_t bytes) {
    return [bytes](TinyOptions& o) { o.config.bucket_bytes = bytes; };
  };
  const auto half = [](TinyOptions& o) {
    const std::uint64_t buckets = total_elems(o) * 2 / o.config.bucket_bytes;
    o.config.pinned_slots = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, buckets / 2));
  };
  const auto nothing = [](TinyOptions&) {};
  return {
      {"bucket",
       {{"1MiB", nothing, ""}, {"64KiB", bucket(64u << 10), ""}, {"16MiB", bucket(16u << 20), ""}}},
      // After the bucket size, which "half" reads.
      {"pinned",
       {{"all", nothing, ""},
        {"half", half, ""},
        {"2", [](TinyOptions& o) { o.config.pinned_slots = 2; }, ""}}},
      {"memops",
       {{"on", nothing, ""},
        {"off", [](TinyOptions& o) { o.device.stream_memory_ops = false; }, ""}}},
      {"gradients",
       {{"own", nothing, ""},
        {"ring2",
         [](TinyOptions& o) {
           if (o.config.placement == Placement::host) o.gradient_ring = 2;
         },
         ""}}},
  };
}

std::vector<Axis> axes() {
  const auto nothing = [](TinyOptions&) {};
  const auto virtual_mode = [](TinyOptions& o) {
    o.device.mode = sim::Mode::virtual_time;
    o.device.seed = 11;
    o.device.rates = {.link_down_bytes_per_s = 1e9,
                      .link_up_bytes_per_s = 2e9,
                      .device_bytes_per_s = 1e10,
                      .host_elems_per_s = {1e9, 3e8}};
    o.device.max_random_delay = sim::Duration(20000);
  };
  const auto two_nodes = [](TinyOptions& o) {
    o.config.host.synthetic_topology = "numa:2 core:1 pu:1";
  };
  const auto fraction = [](double share) {
    return [share](TinyOptions& o) {
      o.config.placement = Placement::fraction;
      o.config.device_fraction = share;
    };
  };
  std::vector<Axis> all = {
      {"placement",
       {{"host", nothing, ""},
        {"device", [](TinyOptions& o) { o.config.placement = Placement::device_resident; }, ""},
        {"streamed", [](TinyOptions& o) { o.config.placement = Placement::device_streamed; }, ""},
        {"0", fraction(0.0), ""},
        {"0.3", fraction(0.3), ""},
        {"0.7", fraction(0.7), ""},
        {"1", fraction(1.0), ""}}},
      {"schedule",
       {{"exact", nothing, ""},
        {"serial", [](TinyOptions& o) { o.config.schedule = Schedule::serial; }, ""},
        {"blocking", [](TinyOptions& o) { o.config.schedule = Schedule::blocking; }, ""}}},
      {"threads",
       {{"1", nothing, ""}, {"2", [](TinyOptions& o) { o.config.host.threads_per_node = 2; }, ""}}},
      {"nodes", {{"1", nothing, ""}, {"2", two_nodes, ""}}},
      {"clock", {{"threads", nothing, ""}, {"virtual", virtual_mode, ""}}},
      {"checks",
       {{"off", nothing, ""}, {"on", [](TinyOptions& o) { o.config.check_waits = true; }, ""}}},
  };
  for (Axis& axis : staging_axes()) all.push_back(std::move(axis));
  Axis simd{"simd", {}};
  for (const std::string& target : simd::supported_targets()) {
    simd.choices.push_back({target, nothing, target});
  }
  all.push_back(std::move(simd));
  return all;
}

constexpr std::size_t kPlacementAxis = 0;
using Row = std::vector<std::size_t>;     // one choice for each axis
using Pair = std::array<std::size_t, 4>;  // axis, choice, other axis, other choice

std::set<Pair> all_pairs(const std::vector<Axis>& axes) {
  std::set<Pair> pairs;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    for (std::size_t b = a + 1; b < axes.size(); ++b) {
      for (std::size_t i = 0; i < axes[a].choices.size(); ++i) {
        for (std::size_t j = 0; j < axes[b].choices.size(); ++j) pairs.insert({a, i, b, j});
      }
    }
  }
  return pairs;
}

/// Most axes mean nothing to a resident bucket: other pairs count where all are on the host.
bool covers(const Row& row, const Pair& pair) {
  if (pair[0] != kPlacementAxis && row[kPlacementAxis] != 0) return false;
  return row[pair[0]] == pair[1] && row[pair[2]] == pair[3];
}

/// The row that covers most of `open` among a fixed number of pseudo-random ones that all cover the
/// first open pair.
Row best_row(const std::vector<Axis>& axes, const std::set<Pair>& open, std::uint64_t round) {
  Row best;
  std::size_t best_covered = 0;
  for (std::uint64_t attempt = 0; attempt < 200; ++attempt) {
    Row row(axes.size());
    for (std::size_t a = 0; a < axes.size(); ++a) {
      row[a] = static_cast<std::size_t>(mix_bits(round, attempt, a) % axes[a].choices.size());
    }
    const Pair& must = *open.begin();
    if (must[0] != kPlacementAxis) row[kPlacementAxis] = 0;
    row[must[0]] = must[1];
    row[must[2]] = must[3];
    std::size_t covered = 0;
    for (const Pair& pair : open) covered += covers(row, pair) ? 1 : 0;
    if (covered > best_covered) {
      best_covered = covered;
      best = row;
    }
  }
  return best;
}

/// The reference, each single change, then rows until every pair has met.
std::vector<Row> make_rows(const std::vector<Axis>& axes) {
  std::vector<Row> rows = {Row(axes.size(), 0)};
  for (std::size_t a = 0; a < axes.size(); ++a) {
    for (std::size_t i = 1; i < axes[a].choices.size(); ++i) {
      rows.push_back(rows[0]);
      rows.back()[a] = i;
    }
  }
  std::set<Pair> open = all_pairs(axes);
  for (std::size_t r = 0; !open.empty(); ++r) {
    if (r >= rows.size()) rows.push_back(best_row(axes, open, r));
    std::erase_if(open, [&](const Pair& pair) { return covers(rows[r], pair); });
  }
  return rows;
}

std::string row_name(const std::vector<Axis>& axes, const Row& row) {
  std::string name;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (a > 0 && row[a] == 0) continue;
    name += (a > 0 ? " " : "") + axes[a].name + "=" + axes[a].choices[row[a]].name;
  }
  return name;
}

/// Forces a target for one scope.
class ForcedTarget {
 public:
  explicit ForcedTarget(const std::string& name) : forced_(simd::force_target(name)) {}
  ~ForcedTarget() { simd::force_target(""); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
  [[nodiscard]] bool forced() const { return forced_; }

 private:
  bool forced_;
};

Trajectory run_row(const std::vector<Axis>& axes, const Row& row, std::uint64_t digests) {
  TinyOptions options = base_options();
  std::string target;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const Choice& choice = axes[a].choices[row[a]];
    choice.apply(options);
    if (!choice.simd.empty()) target = choice.simd;
  }
  round_fraction(options);
  const ForcedTarget forced(target);
  EXPECT_TRUE(forced.forced()) << target;
  return run_trajectory(std::move(options), {.steps = kSteps, .digests = digests});
}

TEST(Bits, SameTrajectoryInEveryConfiguration) {
  const std::vector<Axis> all = axes();
  const std::vector<Row> rows = make_rows(all);
  const Trajectory reference = run_row(all, rows[0], ~std::uint64_t{0});
  std::size_t skipped = 0;
  for (const TrajectoryStep& step : reference) skipped += step.skipped ? 1 : 0;
  ASSERT_EQ(skipped, 1u);
  ASSERT_TRUE(reference[kOverflowStep].skipped);
  ASSERT_GT(reference[kOverflowStep].loss_scale, reference[0].loss_scale) << "never grew";
  ASSERT_GT(reference[0].grad_norm, 1.0) << "clipping has no effect";
  ASSERT_NE(reference[0].loss, reference[1].loss) << "weights never move";

  std::printf("%-110s %s\n", "configuration (what differs from the first row)", "final digest");
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::string name = row_name(all, rows[r]);
    SCOPED_TRACE(name);
    // Even rows drain after each step and compare each digest; odd ones overlap their steps.
    const std::uint64_t digests = r % 2 == 0 ? ~std::uint64_t{0} : 0x24;
    const Trajectory seen = run_row(all, rows[r], digests);
    EXPECT_EQ(first_difference(reference, seen), "");
    std::printf("%-110s %016" PRIx64 "\n", name.c_str(), seen.back().digest.value());
  }
}

/// Guards the comparison above: it must see one changed bit of one input.
TEST(Bits, AnotherInputGivesAnotherTrajectory) {
  TinyOptions options = base_options();
  options.parameters.resize(4);
  options.injected.clear();
  options.has_gradient = nullptr;
  const Trajectory reference = run_trajectory(options, {.steps = 3});
  EXPECT_EQ(first_difference(reference, run_trajectory(options, {.steps = 3})), "");
  options.injected = {{.step = 1, .parameter = 2, .element = 100002, .bits = 0x3C01}};
  const Trajectory changed = run_trajectory(options, {.steps = 3});
  EXPECT_NE(first_difference(reference, changed), "");
  EXPECT_NE(reference.back().digest, changed.back().digest);
}

}  // namespace
}  // namespace outboard::testing
