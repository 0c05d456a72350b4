// SPDX-License-Identifier: Apache-2.0
/// What each kernel is given: one structure of device addresses and sizes.
#pragma once

#include <cstdint>

namespace gpt::cuda {

using HalfBits = std::uint16_t;
using TokenBits = std::uint16_t;

inline constexpr unsigned kThreads = 128;    ///< of a block, unless said otherwise
inline constexpr unsigned kColumnLanes = 8;  ///< rows that a block of column sums adds at once
inline constexpr unsigned kColumnsOfBlock = 32;

/// `rows` rows of context + 1 tokens.
struct Tokens {
  const TokenBits* tokens;
  std::uint32_t rows, context;
};

struct EmbedArguments {
  Tokens at;
  const HalfBits *wte, *wpe;
  HalfBits* out;
  std::uint32_t width;
};
struct EmbedBackwardArguments {
  Tokens at;
  const HalfBits* dy;
  HalfBits *dwte, *dwpe;
  std::uint32_t width;
};
struct NormalArguments {
  const HalfBits *x, *gain, *bias;
  HalfBits* y;
  std::uint32_t rows, width;
};
struct NormalBackwardArguments {
  const HalfBits *x, *gain, *dy, *residual;  ///< residual: null, or added to dx
  HalfBits* dx;
  float* moments;  ///< out: mean and inverse deviation of each row
  std::uint32_t rows, width;
};
/// Sums over the rows: of dy, and with x of dy times the normalized x.
struct ColumnsArguments {
  const HalfBits *x, *dy;
  const float* moments;
  HalfBits *dgain, *dbias;  ///< dgain: null without x
  std::uint32_t rows, width;
};
struct GeluArguments {
  const HalfBits *x, *dy;  ///< dy: null going forward
  HalfBits* out;           ///< may be dy
  std::uint64_t elems;
};
struct AttentionArguments {
  const HalfBits *qkv, *dout;  ///< dout: null going forward
  HalfBits* out;               ///< out, or dqkv
  float*
      stats;  ///< backward: of each query of each head its largest score, 1 / sum of exp, and dot
  std::uint32_t rows, context, heads, head_width;
};
struct LossArguments {
  Tokens at;
  float* logits;       ///< positions x vocab, from `first` on
  HalfBits* gradient;  ///< the same of (softmax - one_hot) scale; null: not wanted
  float* log_sum;      ///< of all positions
  double* losses;      ///< of all positions; null: log_sum is known already
  float scale;
  std::uint32_t first, count, vocab;
};
struct SumArguments {
  const double* values;
  double* sum;
  std::uint64_t count;
};
/// dst = src, rounded once.
struct NarrowArguments {
  const float* src;
  HalfBits* dst;
  std::uint64_t elems;
};

}  // namespace gpt::cuda
