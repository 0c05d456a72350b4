// SPDX-License-Identifier: Apache-2.0
/// The kernels one by one, on one thread. Whole measurements of the update, with all threads and
/// the memory's own rate, are what `outboard bench update` makes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "plain_loop.hpp"
#include "simd/accumulate.hpp"
#include "simd/convert.hpp"
#include "simd/digest.hpp"
#include "simd/reduce.hpp"
#include "simd/sum_alone.hpp"
#include "simd/target.hpp"
#include "update_bench/check.hpp"
#include "update_bench/series.hpp"
#include "update_bench/stepper.hpp"

namespace {

using namespace outboard;
using namespace outboard::update_bench;
using simd::Format;

constexpr std::uint64_t kElems = 4'000'000;

/// One thread and the data of one workload.
struct Rig {
  explicit Rig(const Workload& asked)
      : workload(asked),
        machine(topology::discover()),
        crew(machine, topology::choose_threads(machine, 1, 0)),
        layout(make_layout(tensor_sizes(workload), std::vector<std::uint32_t>{1}, 4096)),
        data(machine, std::vector<std::uint64_t>{layout[0].elems}, workload),
        stepper(crew, data, layout, workload) {
    stepper.fill(Values::normal);
  }
  Workload workload;
  topology::Machine machine;
  Crew crew;
  std::vector<NodeLayout> layout;
  Data data;
  Stepper stepper;
};

void count_elems(benchmark::State& state) {
  state.counters["per_elem"] = benchmark::Counter(
      static_cast<double>(kElems),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void update(benchmark::State& state) {
  Workload workload;
  workload.params = kElems;
  workload.rule = static_cast<Rule>(state.range(0));
  workload.grad = workload.weight = static_cast<Format>(state.range(1));
  workload.stochastic = state.range(2) != 0;
  Rig rig(workload);
  (void)rig.stepper.run(Values::normal, kCheckPasses);
  if (!check(rig.stepper, workload).equal) {
    return state.SkipWithError("one thread of another target computes other bits");
  }
  std::vector<double> step;
  std::vector<double> roof;
  for (auto _ : state) {
    roof.push_back(rig.stepper.run_roof(1));
    step.push_back(rig.stepper.run(Values::normal, 1));
    state.SetIterationTime(step.back());
  }
  count_elems(state);
  state.counters["share_of_roof"] =
      bytes_per_param(workload) / kRoofBytes * summarize(ratios(roof, step)).median;
  state.SetLabel(std::string(name_of(workload.rule)) + " " + std::string(name_of(workload.grad)) +
                 (workload.stochastic ? " stochastic" : "") + " " +
                 std::string(simd::active_target()));
}
BENCHMARK(update)
    ->ArgNames({"rule", "format", "stochastic"})
    ->ArgsProduct({{0, 1, 2, 3, 4, 5}, {0, 1, 2}, {0}})
    ->ArgsProduct({{0}, {0, 1}, {1}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

/// Seconds of one step of the plain loop over the rig's data, on the rig's thread.
double run_plain(Rig& rig, std::uint32_t passes) {
  const simd::RuleScalars scalars = scalars_of(Rule::adamw, false);
  return rig.crew.run([&](std::uint32_t, std::uint32_t) {
    for (std::uint32_t pass = 0; pass < passes; ++pass) {
      for (const Piece& piece : rig.layout[0].slices[0].pieces) {
        bench::plain_adamw(rig.stepper.view(0).shard(piece, Rule::adamw),
                           std::get<simd::AdamWScalars>(scalars));
      }
    }
  });
}

/// Whether both make the same masters of fresh data, up to roundings.
bool same_masters(Rig& rig) {
  rig.stepper.fill(Values::normal);
  (void)rig.stepper.run(Values::normal, 1);
  const std::span<float> param = rig.stepper.view(0).param;
  const std::vector<float> ours(param.begin(), param.end());
  rig.stepper.fill(Values::normal);
  (void)run_plain(rig, 1);
  return std::equal(ours.begin(), ours.end(), param.begin(),
                    [](float a, float b) { return std::fabs(a - b) <= 1e-7F; });
}

void plain_loop(benchmark::State& state) {
  Workload workload;
  workload.params = static_cast<std::uint64_t>(state.range(0));
  workload.grad = workload.weight = static_cast<Format>(state.range(1));
  Rig rig(workload);
  if (!same_masters(rig)) return state.SkipWithError("the plain loop computes something else");
  const auto passes =
      static_cast<std::uint32_t>(std::max<std::uint64_t>(kElems / workload.params, 1));
  std::vector<double> plain;
  std::vector<double> ours;
  for (auto _ : state) {
    ours.push_back(rig.stepper.run(Values::normal, passes));
    plain.push_back(run_plain(rig, passes));
    state.SetIterationTime(plain.back());
  }
  state.counters["over_ours"] = summarize(ratios(plain, ours)).median;
  state.SetLabel("adamw " + std::string(name_of(workload.grad)) + " in a plain loop");
}
BENCHMARK(plain_loop)
    ->ArgNames({"params", "format"})
    ->ArgsProduct({{100'000, 1'000'000, 10'000'000, 100'000'000}, {0, 1, 2}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

enum Pass : std::int64_t { kReduce, kToFloat, kFromFloat, kAccumulate, kDigest };

std::uint64_t digest(const View& view) {
  return simd::digest_state({.parameter = 1,
                             .first_element = 0,
                             .param = view.param,
                             .state = {view.state[0], view.state[1]}});
}

void run_pass(Pass pass, const View& view) {
  const simd::ConstElements grad{view.grad.data, view.grad.format};
  switch (pass) {
    case kReduce:
      return benchmark::DoNotOptimize(simd::reduce_gradient(grad, kElems).sum_of_squares);
    case kToFloat:
      return simd::to_float(grad, view.state[0]);
    case kFromFloat:
      return benchmark::DoNotOptimize(simd::from_float(view.param, view.grad));
    case kAccumulate:
      return simd::accumulate({.grad = grad, .sum = view.state[1]});
    case kDigest:
      return benchmark::DoNotOptimize(digest(view));
  }
}

struct Outcome {
  double sum_of_squares;
  std::uint64_t digest;
  bool operator==(const Outcome&) const = default;
};

/// What is in memory after the pass on fresh data.
Outcome outcome(Pass pass, Rig& rig) {
  rig.stepper.fill(Values::normal);
  const View& view = rig.stepper.view(0);
  run_pass(pass, view);
  const simd::ConstElements grad{view.grad.data, view.grad.format};
  return {simd::reduce_gradient(grad, kElems).sum_of_squares, digest(view)};
}

bool same_on_scalar(Pass pass, Rig& rig) {
  const Outcome best = outcome(pass, rig);
  const std::string before(simd::active_target());
  (void)simd::force_target("scalar");
  const Outcome plain = outcome(pass, rig);
  (void)simd::force_target(before);
  return best == plain;
}

void pass(benchmark::State& state) {
  constexpr const char* kNames[] = {"reduce_gradient", "to_float", "from_float", "accumulate",
                                    "digest_state"};
  const auto which = static_cast<Pass>(state.range(0));
  Workload workload;
  workload.params = kElems;
  workload.grad = workload.weight = static_cast<Format>(state.range(1));
  Rig rig(workload);
  if (!same_on_scalar(which, rig)) {
    return state.SkipWithError("the scalar target computes something else");
  }
  for (auto _ : state) {
    run_pass(which, rig.stepper.view(0));
    benchmark::ClobberMemory();
  }
  count_elems(state);
  state.SetLabel(std::string(kNames[which]) + " " + std::string(name_of(workload.grad)));
}
BENCHMARK(pass)
    ->ArgNames({"pass", "format"})
    ->ArgsProduct({{kReduce, kToFloat, kFromFloat, kAccumulate}, {0, 1, 2}})
    ->Args({kDigest, 0})
    ->Unit(benchmark::kMicrosecond);

template <class Sum>
double seconds_of(std::uint64_t passes, const Sum& sum) {
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t pass = 0; pass < passes; ++pass) {
    benchmark::DoNotOptimize(sum());
    benchmark::ClobberMemory();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The sum of squares with its search for what is not finite, over that sum alone, in turns.
void finite_check(benchmark::State& state) {
  Workload workload;
  workload.params = static_cast<std::uint64_t>(state.range(0));
  workload.grad = workload.weight = static_cast<Format>(state.range(1));
  Rig rig(workload);
  const View& view = rig.stepper.view(0);
  const simd::ConstElements grad{view.grad.data, view.grad.format};
  const auto checked = [&] { return simd::reduce_gradient(grad, workload.params).sum_of_squares; };
  const auto alone = [&] { return simd::sum_of_finite_squares(grad, workload.params); };
  if (checked() != alone()) return state.SkipWithError("one of them computes something else");
  const std::uint64_t passes = std::max<std::uint64_t>(kElems / workload.params, 1);
  std::vector<double> with;
  std::vector<double> without;
  for (auto _ : state) {
    without.push_back(seconds_of(passes, alone));
    with.push_back(seconds_of(passes, checked));
    state.SetIterationTime(with.back());
  }
  const Summary over = summarize(ratios(with, without));
  state.counters["over_alone"] = over.median;
  state.counters["over_alone_low"] = over.low;
  state.counters["over_alone_high"] = over.high;
  state.SetLabel("reduce_gradient " + std::string(name_of(workload.grad)) + " over its sum " +
                 std::string(simd::active_target()));
}
BENCHMARK(finite_check)
    ->ArgNames({"params", "format"})
    ->ArgsProduct({{100'000, 1'000'000, 10'000'000, 100'000'000}, {0, 1, 2}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
