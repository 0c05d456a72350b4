// SPDX-License-Identifier: Apache-2.0
/// The kernels against the machine: every AdamW pass is timed next to a pass that reads and writes
/// three FP32 streams (24 bytes per parameter), the roof for this mix of traffic.
///
/// Arguments: parameters, threads. Counters: ns_per_param, gb_per_s at 28 bytes per parameter,
/// roof_gb_per_s, and share_of_roof, their ratio. Threads are timed between two barriers.
#include <benchmark/benchmark.h>

#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "simd/adamw.hpp"
#include "simd/convert.hpp"
#include "simd/digest.hpp"
#include "simd/reduce.hpp"
#include "simd/reference.hpp"
#include "simd/target.hpp"

#if defined(__x86_64__)
#define BENCH_TARGET_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define BENCH_TARGET_CLONES
#endif

namespace {

using namespace outboard::simd;

constexpr double kAdamWBytes = 28.0;
constexpr double kRoofBytes = 24.0;
constexpr AdamWScalars kScalars = {.beta1 = 0.9F,
                                   .one_minus_beta1 = 0.1F,
                                   .beta2 = 0.999F,
                                   .one_minus_beta2 = 0.001F,
                                   .eps = 1e-8F,
                                   .step_size = 1e-3F,
                                   .lr_wd = 1e-5F,
                                   .inv_sqrt_bias2 = 1.5F,
                                   .coeff = 0x1p-10F,
                                   .exp_avg_sq_floor = 0x1.01p-126F,
                                   .grad_sq_floor = 0x1p-58F};

/// Threads that run one function each and meet before and after it.
class Team {
 public:
  explicit Team(std::size_t size) : barrier_(static_cast<std::ptrdiff_t>(size) + 1) {
    for (std::size_t i = 0; i < size; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  ~Team() {
    work_ = nullptr;
    barrier_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] std::size_t size() const { return threads_.size(); }
  /// Seconds until the last thread has returned.
  double run(std::function<void(std::size_t)> function) {
    work_ = std::move(function);
    const auto start = std::chrono::steady_clock::now();
    barrier_.arrive_and_wait();
    barrier_.arrive_and_wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  void work(std::size_t index) {
    for (;;) {
      barrier_.arrive_and_wait();
      if (!work_) return;
      work_(index);
      barrier_.arrive_and_wait();
    }
  }

  std::barrier<> barrier_;
  std::function<void(std::size_t)> work_;
  std::vector<std::thread> threads_;
};

/// Zeroed memory in huge pages where the system grants them.
template <class T>
class Pages {
 public:
  explicit Pages(std::size_t size)
      : size_(size), bytes_(std::max<std::size_t>(size * sizeof(T), 1)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    (void)madvise(data_, bytes_, MADV_HUGEPAGE);
  }
  ~Pages() { (void)munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] std::span<T> span() { return {static_cast<T*>(data_), size_}; }

 private:
  std::size_t size_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

struct Slice {
  std::size_t first;
  std::size_t count;
};
Slice slice_of(std::size_t size, std::size_t parts, std::size_t index) {
  const std::size_t first = size * index / parts;
  return {first, size * (index + 1) / parts - first};
}

/// One tensor's state and its slot: the weight goes where the gradient was.
struct Tensor {
  explicit Tensor(std::size_t size) : param(size), exp_avg(size), exp_avg_sq(size), slot(size) {}

  void fill(Slice part) {
    for (std::size_t i = part.first; i < part.first + part.count; ++i) {
      const auto x = static_cast<float>((i * 2654435761U) % 1000U) * 1e-3F - 0.5F;
      param.span()[i] = x;
      exp_avg.span()[i] = x * 1e-3F;
      exp_avg_sq.span()[i] = x * x * 1e-4F + 1e-9F;
      slot.span()[i] = static_cast<std::uint16_t>((i * 40503U) % 0x7000U);
    }
  }
  void fill_subnormal(Slice part) {
    for (std::size_t i = part.first; i < part.first + part.count; ++i) {
      const float x = std::ldexp(1.0F + static_cast<float>(i % 1000U), -140);
      param.span()[i] = x;
      exp_avg.span()[i] = -x;
      exp_avg_sq.span()[i] = x;
      slot.span()[i] = static_cast<std::uint16_t>(1U + i % 0x3FFU);
    }
  }
  [[nodiscard]] AdamWShard shard(Slice part) {
    const auto cut = [&](auto span) { return span.subspan(part.first, part.count); };
    return {cut(slot.span()), cut(param.span()), cut(exp_avg.span()), cut(exp_avg_sq.span()),
            cut(slot.span())};
  }
  Pages<float> param, exp_avg, exp_avg_sq;
  Pages<std::uint16_t> slot;
};

/// Whether one step of the first elements is what the reference makes of them.
bool step_is_right(Tensor& tensor) {
  const Slice part{0, std::min<std::size_t>(tensor.param.span().size(), 1000)};
  tensor.fill(part);
  std::vector<double> expected;
  for (std::size_t i = 0; i < part.count; ++i) {
    const reference::Element old{tensor.param.span()[i],
                                 {tensor.exp_avg.span()[i], tensor.exp_avg_sq.span()[i]}};
    expected.push_back(
        reference::step(kScalars, old, reference::half_value(tensor.slot.span()[i])).param);
  }
  (void)adamw_step(tensor.shard(part), kScalars);
  for (std::size_t i = 0; i < part.count; ++i) {
    if (!(std::fabs(static_cast<double>(tensor.param.span()[i]) - expected[i]) < 1e-6))
      return false;
  }
  return true;
}

BENCH_TARGET_CLONES void touch_three(float* a, float* b, float* c, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = a[i] * 0.999F;
    b[i] = b[i] * 0.999F;
    c[i] = c[i] * 0.999F;
  }
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void report(benchmark::State& state, std::vector<double>& step, std::vector<double>& roof) {
  const auto size = static_cast<double>(state.range(0));
  const double rate = kAdamWBytes * size / median(step) * 1e-9;
  const double roof_rate = kRoofBytes * size / median(roof) * 1e-9;
  state.counters["ns_per_param"] = median(step) / size * 1e9;
  state.counters["gb_per_s"] = rate;
  state.counters["roof_gb_per_s"] = roof_rate;
  state.counters["share_of_roof"] = rate / roof_rate;
  state.SetLabel(std::string(active_target()));
}

void adamw(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  Team team(static_cast<std::size_t>(state.range(1)));
  Tensor tensor(size);
  Tensor other(size);
  const auto part = [&](std::size_t i) { return slice_of(size, team.size(), i); };
  team.run([&](std::size_t i) { tensor.fill(part(i)), other.fill(part(i)); });
  if (!step_is_right(tensor)) return state.SkipWithError("the step differs from the reference");
  std::vector<double> step;
  std::vector<double> roof;
  for (auto _ : state) {
    roof.push_back(team.run([&](std::size_t i) {
      const AdamWShard s = other.shard(part(i));
      touch_three(s.param.data(), s.exp_avg.data(), s.exp_avg_sq.data(), s.param.size());
    }));
    step.push_back(
        team.run([&](std::size_t i) { (void)adamw_step(tensor.shard(part(i)), kScalars); }));
    // The slot now holds weights; below 1 in magnitude, they are as good as gradients.
    state.SetIterationTime(step.back());
  }
  report(state, step, roof);
}
BENCHMARK(adamw)
    ->ArgNames({"params", "threads"})
    ->ArgsProduct({{100'000, 1'000'000, 16'000'000, 64'000'000}, {1, 2}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

/// Ordinary against subnormal data, written anew before every pass since a step removes it.
void adamw_values(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const Slice all{0, size};
  AdamWScalars scalars = kScalars;
  if (state.range(1) != 0) scalars.coeff = 0x1p-90F;
  Tensor tensor(size);
  std::vector<double> step;
  for (auto _ : state) {
    state.range(1) != 0 ? tensor.fill_subnormal(all) : tensor.fill(all);
    const auto start = std::chrono::steady_clock::now();
    (void)adamw_step(tensor.shard(all), scalars);
    step.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    state.SetIterationTime(step.back());
  }
  state.counters["ns_per_param"] = median(step) / static_cast<double>(size) * 1e9;
}
BENCHMARK(adamw_values)
    ->ArgNames({"params", "subnormal"})
    ->ArgsProduct({{1'000'000}, {0, 1}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

enum Pass : std::int64_t { kReduce, kDigest, kHalfToFloat, kFloatToHalf };

/// The lesser passes, one thread.
void pass(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  Tensor tensor(size);
  tensor.fill({0, size});
  std::uint64_t kept = 0;
  for (auto _ : state) {
    switch (state.range(1)) {
      case kReduce:
        kept += static_cast<std::uint64_t>(reduce_gradient(tensor.slot.span()).sum_of_squares);
        break;
      case kDigest:
        kept += digest_state({.parameter = 1,
                              .first_element = 0,
                              .param = tensor.param.span(),
                              .state = {tensor.exp_avg.span(), tensor.exp_avg_sq.span()}});
        break;
      case kHalfToFloat:
        half_to_float(tensor.slot.span(), tensor.exp_avg.span());
        break;
      default:
        kept += float_to_half(tensor.param.span(), tensor.slot.span());
    }
    benchmark::DoNotOptimize(kept);
    benchmark::ClobberMemory();
  }
  state.counters["ns_per_elem"] = benchmark::Counter(
      static_cast<double>(size) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  constexpr const char* kNames[] = {"reduce_gradient", "digest_state", "half_to_float",
                                    "float_to_half"};
  state.SetLabel(kNames[state.range(1)]);
}
BENCHMARK(pass)
    ->ArgNames({"elems", "pass"})
    ->ArgsProduct({{1'000'000, 16'000'000}, {kReduce, kDigest, kHalfToFloat, kFloatToHalf}});

}  // namespace

BENCHMARK_MAIN();
