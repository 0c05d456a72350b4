// SPDX-License-Identifier: Apache-2.0
/// The kernel and the roof for a caller of another language that owns the memory: compare.py lets
/// every optimizer work on the same pages. Not installed, no promise of compatibility.
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "optim/rule_scalars.hpp"
#include "simd/target.hpp"
#include "simd/update.hpp"
#include "update_bench/bench.hpp"
#include "update_bench/roof.hpp"

#define PEERS_API extern "C" __attribute__((visibility("default")))

namespace {

using namespace outboard;

thread_local std::string last_error;

struct Range {
  std::uint64_t begin, end;
};

/// Every thread's part of `elems`.
class Parts {
 public:
  Parts(const update_bench::Crew& crew, std::uint64_t elems)
      : layout_(update_bench::make_layout(std::span(&elems, 1), crew.threads_per_node(),
                                          update_bench::kCutElems)) {}
  /// Counted from the start of all elements: here they lie in one piece.
  [[nodiscard]] Range of(std::uint32_t node, std::uint32_t part) const {
    std::uint64_t before = 0;
    for (std::uint32_t i = 0; i < node; ++i) before += layout_[i].elems;
    const update_bench::Slice& slice = layout_[node].slices[part];
    return {before + slice.begin, before + slice.end};
  }

 private:
  std::vector<update_bench::NodeLayout> layout_;
};

}  // namespace

/// One step of one tensor. The weight may be the gradient's own memory if both have one size.
struct PeersAdamW {
  float* param;
  float* exp_avg;
  float* exp_avg_sq;
  void* grad;
  void* weight;
  std::uint64_t elems;
  std::int32_t grad_format, weight_format;  // 0 f16, 1 bf16, 2 f32
  double lr, beta1, beta2, eps, weight_decay;
  std::uint64_t step;  // from 1
};

/// Threads on each node, 0: all cores. Null, and peers_error(), if it fails.
PEERS_API update_bench::Bench* peers_open(std::uint32_t threads) {
  try {
    return std::make_unique<update_bench::Bench>(threads).release();
  } catch (const std::exception& error) {
    last_error = error.what();
    return nullptr;
  }
}
PEERS_API void peers_close(update_bench::Bench* bench) {
  const std::unique_ptr<update_bench::Bench> owner(bench);
}
PEERS_API const char* peers_error() {
  return last_error.c_str();
}
PEERS_API const char* peers_isa() {
  static const std::string name(simd::active_target());
  return name.c_str();
}

PEERS_API void peers_adamw(update_bench::Bench* bench, const PeersAdamW* call) {
  const AdamW settings{.lr = call->lr,
                       .beta1 = call->beta1,
                       .beta2 = call->beta2,
                       .eps = call->eps,
                       .weight_decay = call->weight_decay};
  const simd::RuleScalars scalars = optim::scalars(settings, call->step, 1.0);
  const update_bench::View all = {
      {call->param, call->elems},
      {std::span(call->exp_avg, call->elems), std::span(call->exp_avg_sq, call->elems)},
      {call->grad, static_cast<simd::Format>(call->grad_format)},
      {call->weight, static_cast<simd::Format>(call->weight_format)}};
  const Parts parts(bench->crew(), call->elems);
  bench->crew().run([&](std::uint32_t node, std::uint32_t part) {
    const Range range = parts.of(node, part);
    const update_bench::Piece piece{
        .offset = range.begin, .elems = range.end - range.begin, .first_element = range.begin};
    (void)simd::update(all.shard(piece, update_bench::Rule::adamw), scalars);
  });
}

/// Reads and writes three FP32 streams; changes no bit.
PEERS_API void peers_roof(update_bench::Bench* bench, float* first, float* second, float* third,
                          std::uint64_t elems) {
  const Parts parts(bench->crew(), elems);
  bench->crew().run([&](std::uint32_t node, std::uint32_t part) {
    const Range range = parts.of(node, part);
    const std::uint64_t count = range.end - range.begin;
    update_bench::touch_three({std::span(first + range.begin, count),
                               std::span(second + range.begin, count),
                               std::span(third + range.begin, count)});
  });
}
