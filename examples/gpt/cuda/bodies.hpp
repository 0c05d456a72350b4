// SPDX-License-Identifier: Apache-2.0
/// The kernels of the model, written once: as what the threads of a block do between barriers. On a
/// GPU the threads are the block's; on the host, where tests run the same text, a loop.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "../elementary.hpp"
#include "arguments.hpp"

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#define GPT_BODY __device__ inline
#else
#include "outboard/half.hpp"
#define GPT_BODY inline
#endif

namespace gpt::cuda {

/// One block of threads with its shared memory.
struct Block {
  std::uint64_t index;
  unsigned threads;
  float* shared;

  /// Runs body(thread) for every thread; all have ended before the next one begins.
  template <class Body>
  GPT_BODY void each(const Body& body) const {
#if defined(__CUDA_ARCH__)
    body(threadIdx.x);
    __syncthreads();
#else
    for (unsigned thread = 0; thread < threads; ++thread) body(thread);
#endif
  }
  /// Folds shared[at + thread] by halves into shared[at]; `threads` is a power of two.
  template <class Fold>
  GPT_BODY void fold(unsigned at, const Fold& fold_two) const {
    for (unsigned half = threads / 2; half > 0; half /= 2) {
      each([&](unsigned t) {
        if (t < half) shared[at + t] = fold_two(shared[at + t], shared[at + t + half]);
      });
    }
  }
  GPT_BODY void fold_sum(unsigned at) const {
    fold(at, [](float a, float b) { return a + b; });
  }
};

GPT_BODY float widen_one(HalfBits half) {
#if defined(__CUDACC__)
  return __half2float(__ushort_as_half(half));
#else
  return outboard::half_to_float(half);
#endif
}
GPT_BODY HalfBits narrow_one(float value) {
#if defined(__CUDACC__)
  return __half_as_ushort(__float2half_rn(value));
#else
  return outboard::half_from_float(value);
#endif
}

GPT_BODY TokenBits input_of(const Tokens& at, std::uint64_t position) {
  return at.tokens[position / at.context * (at.context + 1) + position % at.context];
}
GPT_BODY TokenBits target_of(const Tokens& at, std::uint64_t position) {
  return at.tokens[position / at.context * (at.context + 1) + position % at.context + 1];
}

// --- embedding: a block for each position, or place in the context
// -----------------------------------

GPT_BODY void embed(const Block& block, const EmbedArguments& k) {
  const std::uint64_t token = input_of(k.at, block.index);
  const std::uint64_t place = block.index % k.at.context;
  block.each([&](unsigned t) {
    for (std::uint64_t c = t; c < k.width; c += block.threads) {
      const float sum =
          widen_one(k.wte[token * k.width + c]) + widen_one(k.wpe[place * k.width + c]);
      k.out[block.index * k.width + c] = narrow_one(sum);
    }
  });
}

/// The first position of each token adds up all of that token's, in order.
GPT_BODY void embed_backward_table(const Block& block, const EmbedBackwardArguments& k) {
  const std::uint64_t positions = std::uint64_t{k.at.rows} * k.at.context;
  const TokenBits token = input_of(k.at, block.index);
  block.each([&](unsigned t) {
    float earlier = 0.0f;
    for (std::uint64_t q = t; q < block.index; q += block.threads) {
      if (input_of(k.at, q) == token) earlier = 1.0f;
    }
    block.shared[t] = earlier;
  });
  block.fold_sum(0);
  if (block.shared[0] > 0.0f) return;
  block.each([&](unsigned t) {
    for (std::uint64_t c = t; c < k.width; c += block.threads) {
      float sum = 0.0f;
      for (std::uint64_t q = block.index; q < positions; ++q) {
        if (input_of(k.at, q) == token) sum += widen_one(k.dy[q * k.width + c]);
      }
      HalfBits& gradient = k.dwte[token * std::uint64_t{k.width} + c];
      gradient = narrow_one(sum + widen_one(gradient));
    }
  });
}

GPT_BODY void embed_backward_places(const Block& block, const EmbedBackwardArguments& k) {
  block.each([&](unsigned t) {
    for (std::uint64_t c = t; c < k.width; c += block.threads) {
      float sum = 0.0f;
      for (std::uint64_t row = 0; row < k.at.rows; ++row) {
        sum += widen_one(k.dy[(row * k.at.context + block.index) * k.width + c]);
      }
      k.dwpe[block.index * k.width + c] = narrow_one(sum);
    }
  });
}

// --- LayerNorm: a block for each row
// ------------------------------------------------------------------

struct MeanAndScale {
  float mean, inverse_deviation;
};

GPT_BODY MeanAndScale moments_of(const Block& block, const HalfBits* x, std::uint32_t width) {
  const float per_element = 1.0f / static_cast<float>(width);
  block.each([&](unsigned t) {
    float sum = 0.0f;
    for (std::uint32_t c = t; c < width; c += block.threads) sum += widen_one(x[c]);
    block.shared[t] = sum;
  });
  block.fold_sum(0);
  const float mean = block.shared[0] * per_element;
  block.each([&](unsigned) {});
  block.each([&](unsigned t) {
    float sum = 0.0f;
    for (std::uint32_t c = t; c < width; c += block.threads) {
      const float away = widen_one(x[c]) - mean;
      sum += away * away;
    }
    block.shared[t] = sum;
  });
  block.fold_sum(0);
  const float variance = block.shared[0] * per_element;
  block.each([&](unsigned) {});
  return {mean, 1.0f / sqrtf(variance + kNormalEpsilon)};
}

GPT_BODY void normal(const Block& block, const NormalArguments& k) {
  const HalfBits* const x = k.x + block.index * k.width;
  HalfBits* const y = k.y + block.index * k.width;
  const MeanAndScale of = moments_of(block, x, k.width);
  block.each([&](unsigned t) {
    for (std::uint32_t c = t; c < k.width; c += block.threads) {
      const float one = (widen_one(x[c]) - of.mean) * of.inverse_deviation;
      y[c] = narrow_one(one * widen_one(k.gain[c]) + widen_one(k.bias[c]));
    }
  });
}

GPT_BODY void normal_backward(const Block& block, const NormalBackwardArguments& k) {
  const HalfBits* const x = k.x + block.index * k.width;
  const HalfBits* const dy = k.dy + block.index * k.width;
  const MeanAndScale of = moments_of(block, x, k.width);
  const unsigned slopes = block.threads;
  block.each([&](unsigned t) {
    float mean = 0.0f;
    float slope = 0.0f;
    for (std::uint32_t c = t; c < k.width; c += block.threads) {
      const float g = widen_one(dy[c]) * widen_one(k.gain[c]);
      mean += g;
      slope += g * ((widen_one(x[c]) - of.mean) * of.inverse_deviation);
    }
    block.shared[t] = mean;
    block.shared[slopes + t] = slope;
  });
  block.fold_sum(0);
  block.fold_sum(slopes);
  const float per_element = 1.0f / static_cast<float>(k.width);
  const float mean = block.shared[0] * per_element;
  const float slope = block.shared[slopes] * per_element;
  block.each([&](unsigned t) {
    if (t == 0) {
      k.moments[2 * block.index] = of.mean;
      k.moments[2 * block.index + 1] = of.inverse_deviation;
    }
    for (std::uint32_t c = t; c < k.width; c += block.threads) {
      const float normalized = (widen_one(x[c]) - of.mean) * of.inverse_deviation;
      const float g = widen_one(dy[c]) * widen_one(k.gain[c]);
      float dx = of.inverse_deviation * ((g - mean) - normalized * slope);
      const std::uint64_t at = block.index * k.width + c;
      if (k.residual != nullptr) dx += widen_one(k.residual[at]);
      k.dx[at] = narrow_one(dx);
    }
  });
}

/// A block for 32 columns, of 8 lanes of 32 threads.
GPT_BODY void columns(const Block& block, const ColumnsArguments& k) {
  constexpr unsigned kAll = kColumnLanes * kColumnsOfBlock;
  block.each([&](unsigned t) {
    const std::uint64_t c = block.index * kColumnsOfBlock + t % kColumnsOfBlock;
    float dgain = 0.0f;
    float dbias = 0.0f;
    for (std::uint64_t r = t / kColumnsOfBlock; r < k.rows && c < k.width; r += kColumnLanes) {
      const float dy = widen_one(k.dy[r * k.width + c]);
      dbias += dy;
      if (k.x == nullptr) continue;
      dgain += dy * ((widen_one(k.x[r * k.width + c]) - k.moments[2 * r]) * k.moments[2 * r + 1]);
    }
    block.shared[t] = dbias;
    block.shared[kAll + t] = dgain;
  });
  block.each([&](unsigned t) {
    const std::uint64_t c = block.index * kColumnsOfBlock + t;
    if (t >= kColumnsOfBlock || c >= k.width) return;
    float dgain = 0.0f;
    float dbias = 0.0f;
    for (unsigned lane = 0; lane < kColumnLanes; ++lane) {
      dbias += block.shared[lane * kColumnsOfBlock + t];
      dgain += block.shared[kAll + lane * kColumnsOfBlock + t];
    }
    k.dbias[c] = narrow_one(dbias);
    if (k.dgain != nullptr) k.dgain[c] = narrow_one(dgain);
  });
}

// --- element by element: as many blocks as there is room for
// ------------------------------------------

GPT_BODY void gelu_elements(const Block& block, std::uint64_t blocks, const GeluArguments& k) {
  block.each([&](unsigned t) {
    for (std::uint64_t i = block.index * block.threads + t; i < k.elems;
         i += blocks * block.threads) {
      const float x = widen_one(k.x[i]);
      k.out[i] =
          narrow_one(k.dy == nullptr ? x * gelu_gate(x) : widen_one(k.dy[i]) * gelu_slope(x));
    }
  });
}

GPT_BODY void narrow_elements(const Block& block, std::uint64_t blocks, const NarrowArguments& k) {
  block.each([&](unsigned t) {
    for (std::uint64_t i = block.index * block.threads + t; i < k.elems;
         i += blocks * block.threads) {
      k.dst[i] = narrow_one(k.src[i]);
    }
  });
}

// --- attention: a block for each query (or key) of each head; shared: context + 2 x threads floats
// ----

/// Where a block's query or key is.
struct Spot {
  std::uint64_t row, head, place;  // of the batch, in a position, in the context

  GPT_BODY Spot(const Block& block, const AttentionArguments& k)
      : row(block.index / k.context / k.heads),
        head(block.index / k.context % k.heads),
        place(block.index % k.context) {}
  /// Element 0 of this head's part of a position; part 0 is q, 1 is k, 2 is v.
  GPT_BODY std::uint64_t at(const AttentionArguments& k, std::uint64_t position, unsigned part,
                            unsigned parts) const {
    const std::uint64_t width = std::uint64_t{k.heads} * k.head_width;
    return (row * k.context + position) * parts * width + part * width + head * k.head_width;
  }
};

GPT_BODY float dot_of(const HalfBits* a, const HalfBits* b, std::uint32_t count) {
  float sum = 0.0f;
  for (std::uint32_t i = 0; i < count; ++i) sum += widen_one(a[i]) * widen_one(b[i]);
  return sum;
}

/// Leaves softmax(scores) of the query in shared[0, place]; the largest and 1 / sum come back.
GPT_BODY MeanAndScale probabilities(const Block& block, const Spot& spot,
                                    const AttentionArguments& k) {
  float* const p = block.shared;
  const unsigned folds = k.context;
  const float scale = 1.0f / sqrtf(static_cast<float>(k.head_width));
  const HalfBits* const q = k.qkv + spot.at(k, spot.place, 0, 3);
  block.each([&](unsigned t) {
    float largest = -INFINITY;
    for (std::uint64_t key = t; key <= spot.place; key += block.threads) {
      p[key] = scale * dot_of(q, k.qkv + spot.at(k, key, 1, 3), k.head_width);
      largest = p[key] > largest ? p[key] : largest;
    }
    block.shared[folds + t] = largest;
  });
  block.fold(folds, [](float a, float b) { return b > a ? b : a; });
  const float largest = block.shared[folds];
  block.each([&](unsigned) {});
  block.each([&](unsigned t) {
    float sum = 0.0f;
    for (std::uint64_t key = t; key <= spot.place; key += block.threads) {
      sum += p[key] = exp_of(p[key] - largest);
    }
    block.shared[folds + t] = sum;
  });
  block.fold_sum(folds);
  const float inverse = 1.0f / block.shared[folds];
  block.each([&](unsigned t) {
    for (std::uint64_t key = t; key <= spot.place; key += block.threads) p[key] *= inverse;
  });
  return {largest, inverse};
}

GPT_BODY void attention(const Block& block, const AttentionArguments& k) {
  const Spot spot(block, k);
  (void)probabilities(block, spot, k);
  block.each([&](unsigned t) {
    for (std::uint32_t d = t; d < k.head_width; d += block.threads) {
      float sum = 0.0f;
      for (std::uint64_t key = 0; key <= spot.place; ++key) {
        sum += block.shared[key] * widen_one(k.qkv[spot.at(k, key, 2, 3) + d]);
      }
      k.out[spot.at(k, spot.place, 0, 1) + d] = narrow_one(sum);
    }
  });
}

/// dq of one query, and what its keys need of it.
GPT_BODY void attention_backward_query(const Block& block, const AttentionArguments& k) {
  const Spot spot(block, k);
  const float scale = 1.0f / sqrtf(static_cast<float>(k.head_width));
  const MeanAndScale of = probabilities(block, spot, k);
  float* const p = block.shared;
  const unsigned folds = k.context;
  const HalfBits* const dout = k.dout + spot.at(k, spot.place, 0, 1);
  block.each([&](unsigned t) {
    float sum = 0.0f;
    for (std::uint64_t key = t; key <= spot.place; key += block.threads) {
      sum += p[key] * dot_of(dout, k.qkv + spot.at(k, key, 2, 3), k.head_width);
    }
    block.shared[folds + t] = sum;
  });
  block.fold_sum(folds);
  const float dot = block.shared[folds];
  block.each([&](unsigned t) {
    if (t == 0) {
      float* const stats = k.stats + 3 * block.index;
      stats[0] = of.mean;
      stats[1] = of.inverse_deviation;
      stats[2] = dot;
    }
    for (std::uint64_t key = t; key <= spot.place; key += block.threads) {
      const float dp = dot_of(dout, k.qkv + spot.at(k, key, 2, 3), k.head_width);
      p[key] = p[key] * (dp - dot) * scale;
    }
  });
  block.each([&](unsigned t) {
    for (std::uint32_t d = t; d < k.head_width; d += block.threads) {
      float sum = 0.0f;
      for (std::uint64_t key = 0; key <= spot.place; ++key) {
        sum += p[key] * widen_one(k.qkv[spot.at(k, key, 1, 3) + d]);
      }
      k.out[spot.at(k, spot.place, 0, 3) + d] = narrow_one(sum);
    }
  });
}

/// dk and dv of one key, from the queries at its place and after it: 128 at a time.
GPT_BODY void attention_backward_key(const Block& block, const AttentionArguments& k) {
  const Spot spot(block, k);
  const float scale = 1.0f / sqrtf(static_cast<float>(k.head_width));
  float* const p = block.shared;
  float* const ds = block.shared + block.threads;
  float* const dk = block.shared + 2 * std::uint64_t{block.threads};
  float* const dv = dk + k.head_width;
  const std::uint64_t first_query = (block.index - spot.place);  // of the same head
  block.each([&](unsigned t) {
    for (std::uint32_t d = t; d < k.head_width; d += block.threads) dk[d] = dv[d] = 0.0f;
  });
  for (std::uint64_t begin = spot.place; begin < k.context; begin += block.threads) {
    const std::uint64_t left = k.context - begin;
    const std::uint64_t count = left < block.threads ? left : block.threads;
    block.each([&](unsigned t) {
      if (t >= count) return;
      const std::uint64_t query = begin + t;
      const float* const stats = k.stats + 3 * (first_query + query);
      const float score = scale * dot_of(k.qkv + spot.at(k, query, 0, 3),
                                         k.qkv + spot.at(k, spot.place, 1, 3), k.head_width);
      const float dp = dot_of(k.dout + spot.at(k, query, 0, 1),
                              k.qkv + spot.at(k, spot.place, 2, 3), k.head_width);
      p[t] = exp_of(score - stats[0]) * stats[1];
      ds[t] = p[t] * (dp - stats[2]) * scale;
    });
    block.each([&](unsigned t) {
      for (std::uint32_t d = t; d < k.head_width; d += block.threads) {
        for (std::uint64_t i = 0; i < count; ++i) {
          dk[d] += ds[i] * widen_one(k.qkv[spot.at(k, begin + i, 0, 3) + d]);
          dv[d] += p[i] * widen_one(k.dout[spot.at(k, begin + i, 0, 1) + d]);
        }
      }
    });
  }
  block.each([&](unsigned t) {
    for (std::uint32_t d = t; d < k.head_width; d += block.threads) {
      k.out[spot.at(k, spot.place, 1, 3) + d] = narrow_one(dk[d]);
      k.out[spot.at(k, spot.place, 2, 3) + d] = narrow_one(dv[d]);
    }
  });
}

// --- loss: a block for each position
// ------------------------------------------------------------------

GPT_BODY void loss_row(const Block& block, const LossArguments& k) {
  const std::uint64_t position = k.first + block.index;
  float* const row = k.logits + block.index * k.vocab;
  const std::uint32_t target = target_of(k.at, position);
  if (k.losses != nullptr) {
    block.each([&](unsigned t) {
      float largest = -INFINITY;
      for (std::uint32_t v = t; v < k.vocab; v += block.threads) {
        largest = row[v] > largest ? row[v] : largest;
      }
      block.shared[t] = largest;
    });
    block.fold(0, [](float a, float b) { return b > a ? b : a; });
    const float largest = block.shared[0];
    block.each([&](unsigned) {});
    block.each([&](unsigned t) {
      float sum = 0.0f;
      for (std::uint32_t v = t; v < k.vocab; v += block.threads) sum += exp_of(row[v] - largest);
      block.shared[t] = sum;
    });
    block.fold_sum(0);
    block.each([&](unsigned t) {
      if (t != 0) return;
      const double log_sum =
          static_cast<double>(largest) + log(static_cast<double>(block.shared[0]));
      k.log_sum[position] = static_cast<float>(log_sum);
      k.losses[position] = log_sum - static_cast<double>(row[target]);
    });
  }
  if (k.gradient == nullptr) return;
  const float log_sum = k.log_sum[position];
  HalfBits* const gradient = k.gradient + block.index * k.vocab;
  block.each([&](unsigned t) {
    for (std::uint32_t v = t; v < k.vocab; v += block.threads) {
      const float p = exp_of(row[v] - log_sum) - (v == target ? 1.0f : 0.0f);
      gradient[v] = narrow_one(p * k.scale);
    }
  });
}

/// One block; the order is that of the positions.
GPT_BODY void sum_values(const Block& block, const SumArguments& k) {
  block.each([&](unsigned t) {
    if (t != 0) return;
    double sum = 0.0;
    for (std::uint64_t i = 0; i < k.count; ++i) sum += k.values[i];
    *k.sum = sum;
  });
}

}  // namespace gpt::cuda
