// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "host_ops.hpp"
#include "sgemm.hpp"

namespace gpt {
namespace {

using example::narrow;
using example::widen;

/// One head of one sequence, by blocks of queries: each sees its own and earlier positions, so the
/// part of the scores above the diagonal is left out but for the corners of the blocks.
class HeadOf {
 public:
  HeadOf(const AttentionShape& shape, std::size_t task, const RowKernels& rows)
      : shape_(shape),
        rows_(rows),
        d_(shape.head_width),
        scale_(1.0f / std::sqrt(static_cast<float>(d_))),
        position0_(task / shape.heads * shape.context),
        col0_(task % shape.heads * d_) {}

  void forward(const AttentionForward& k, HostOps::Lane& lane) const;
  void backward(const AttentionBackward& k, HostOps::Lane& lane) const;

 private:
  struct Queries {
    std::size_t first, rows, keys;
  };
  template <class Body>
  void for_queries(const Body& body) const {
    for (std::size_t first = 0; first < shape_.context; first += kQueryRows) {
      const std::size_t rows = std::min(kQueryRows, shape_.context - first);
      body(Queries{first, rows, first + rows});
    }
  }
  /// Widens positions [first, first + count) of this head's part of `values`, whose rows have
  /// `parts` widths; part 0 of qkv is q, 1 is k, 2 is v.
  struct Part {
    std::size_t parts, part, first, count;
  };
  void load(std::span<const Half> values, const Part& part, std::span<float> out) const {
    for (std::size_t r = 0; r < part.count; ++r) {
      widen(values.subspan(at(part, r), d_), out.subspan(r * d_, d_));
    }
  }
  void store(std::span<const float> in, const Part& part, std::span<Half> values) const {
    for (std::size_t r = 0; r < part.count; ++r) {
      narrow(in.subspan(r * d_, d_), values.subspan(at(part, r), d_));
    }
  }
  [[nodiscard]] std::size_t at(const Part& part, std::size_t r) const {
    return (position0_ + part.first + r) * part.parts * shape_.width() +
           part.part * shape_.width() + col0_;
  }
  void probabilities(const Queries& block, const float* q, const float* k, float* p) const;

  AttentionShape shape_;
  const RowKernels& rows_;
  std::size_t d_;
  float scale_;
  std::size_t position0_, col0_;
};

/// p = softmax(scale q k^T) of one block, 0 where a key is later than the query.
void HeadOf::probabilities(const Queries& block, const float* q, const float* k, float* p) const {
  sgemm({.rows = block.rows,
         .cols = block.keys,
         .depth = d_,
         .a = {q, d_},
         .b = {k, d_, true},
         .c = p,
         .c_stride = block.keys,
         .scale = scale_});
  for (std::size_t r = 0; r < block.rows; ++r) {
    float* row = p + r * block.keys;
    const std::size_t seen = block.first + r + 1;
    const float sum = rows_.exp_shifted(rows_.largest(row, seen), row, seen);
    rows_.scale(1.0f / sum, row, seen);
    std::fill(row + seen, row + block.keys, 0.0f);
  }
}

void HeadOf::forward(const AttentionForward& kernel, HostOps::Lane& lane) const {
  const std::size_t context = shape_.context;
  const std::span<float> k = lane.take(context * d_), v = lane.take(context * d_);
  const std::size_t queries = std::min(kQueryRows, context);
  const std::span<float> q = lane.take(queries * d_), out = lane.take(queries * d_);
  const std::span<float> p = lane.take(queries * context);
  load(kernel.qkv, {3, 1, 0, context}, k);
  load(kernel.qkv, {3, 2, 0, context}, v);
  for_queries([&](const Queries& block) {
    load(kernel.qkv, {3, 0, block.first, block.rows}, q);
    probabilities(block, q.data(), k.data(), p.data());
    sgemm({.rows = block.rows,
           .cols = d_,
           .depth = block.keys,
           .a = {p.data(), block.keys},
           .b = {v.data(), d_},
           .c = out.data(),
           .c_stride = d_});
    store(out, {1, 0, block.first, block.rows}, kernel.out);
  });
}

void HeadOf::backward(const AttentionBackward& kernel, HostOps::Lane& lane) const {
  const std::size_t context = shape_.context;
  const std::span<float> k = lane.take(context * d_), v = lane.take(context * d_);
  const std::span<float> dk = lane.take(context * d_), dv = lane.take(context * d_);
  const std::size_t queries = std::min(kQueryRows, context);
  const std::span<float> q = lane.take(queries * d_), dq = lane.take(queries * d_);
  const std::span<float> dout = lane.take(queries * d_);
  const std::span<float> p = lane.take(queries * context), dp = lane.take(queries * context);
  load(kernel.qkv, {3, 1, 0, context}, k);
  load(kernel.qkv, {3, 2, 0, context}, v);
  std::fill(dk.begin(), dk.end(), 0.0f);
  std::fill(dv.begin(), dv.end(), 0.0f);
  for_queries([&](const Queries& block) {
    const Matrix scores{dp.data(), block.keys}, scores_by_key{dp.data(), block.keys, true};
    load(kernel.qkv, {3, 0, block.first, block.rows}, q);
    load(kernel.dout, {1, 0, block.first, block.rows}, dout);
    probabilities(block, q.data(), k.data(), p.data());
    sgemm({.rows = block.keys,
           .cols = d_,
           .depth = block.rows,
           .a = {p.data(), block.keys, true},
           .b = {dout.data(), d_},
           .c = dv.data(),
           .c_stride = d_,
           .keep = 1.0f});
    sgemm({.rows = block.rows,
           .cols = block.keys,
           .depth = d_,
           .a = {dout.data(), d_},
           .b = {v.data(), d_, true},
           .c = dp.data(),
           .c_stride = block.keys});
    for (std::size_t r = 0; r < block.rows; ++r) {
      rows_.softmax_backward(p.data() + r * block.keys, scale_, dp.data() + r * block.keys,
                             block.keys);
    }
    sgemm({.rows = block.rows,
           .cols = d_,
           .depth = block.keys,
           .a = scores,
           .b = {k.data(), d_},
           .c = dq.data(),
           .c_stride = d_});
    sgemm({.rows = block.keys,
           .cols = d_,
           .depth = block.rows,
           .a = scores_by_key,
           .b = {q.data(), d_},
           .c = dk.data(),
           .c_stride = d_,
           .keep = 1.0f});
    store(dq, {3, 0, block.first, block.rows}, kernel.dqkv);
  });
  store(dk, {3, 1, 0, context}, kernel.dqkv);
  store(dv, {3, 2, 0, context}, kernel.dqkv);
}

}  // namespace

void HostOps::attention_forward(const AttentionForward& k) {
  workers_.run(k.shape.rows * k.shape.heads, [&](std::size_t task, std::size_t thread) {
    HeadOf(k.shape, task, rows_).forward(k, lanes_[thread].restart());
  });
}

void HostOps::attention_backward(const AttentionBackward& k) {
  workers_.run(k.shape.rows * k.shape.heads, [&](std::size_t task, std::size_t thread) {
    HeadOf(k.shape, task, rows_).backward(k, lanes_[thread].restart());
  });
}

}  // namespace gpt
