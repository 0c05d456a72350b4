// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host_ops.hpp"

namespace gpt {

using example::narrow;
using example::widen;

namespace {

constexpr std::size_t kRows = 32;    // of one task
constexpr std::size_t kTokens = 64;  // of the vocabulary, of one task
constexpr std::size_t kPieces = 16;  // of GELU's elements, of one task

/// Calls body(row) for the rows of a task.
template <class Body>
void for_rows(std::size_t task, std::size_t rows, const Body& body) {
  const std::size_t end = std::min(rows, (task + 1) * kRows);
  for (std::size_t row = task * kRows; row < end; ++row) body(row);
}

}  // namespace

// --- embedding ----------------------------------------------------------------------------------

void HostOps::embed_forward(const EmbedForward& k) {
  const std::size_t positions = k.tokens.positions();
  workers_.run(divide_up(positions, kRows), [&](std::size_t task, std::size_t thread) {
    Lane& lane = lanes_[thread].restart();
    const std::span<float> sum = lane.take(k.width);
    const std::span<float> place = lane.take(k.width);
    for_rows(task, positions, [&](std::size_t at) {
      widen(k.wte.subspan(k.tokens.input(at) * k.width, k.width), sum);
      widen(k.wpe.subspan(at % k.tokens.context * k.width, k.width), place);
      rows_.add(place.data(), sum.data(), k.width);
      narrow(sum, k.out.subspan(at * k.width, k.width));
    });
  });
}

void HostOps::sort_positions(const TokenRows& tokens, std::size_t vocab) {
  const std::size_t positions = tokens.positions();
  std::fill(first_.begin(), first_.end(), 0u);
  for (std::size_t at = 0; at < positions; ++at) ++first_[tokens.input(at) + 1u];
  for (std::size_t token = 0; token < vocab; ++token) first_[token + 1] += first_[token];
  // Filling moves each start to the end of its token's range, which is the start of the next one's.
  for (std::size_t at = 0; at < positions; ++at) {
    position_[first_[tokens.input(at)]++] = static_cast<std::uint32_t>(at);
  }
}

void HostOps::embed_backward(const EmbedBackward& k) {
  const std::size_t vocab = k.dwte.size() / k.width;
  sort_positions(k.tokens, vocab);
  workers_.run(divide_up(vocab, kTokens), [&](std::size_t task, std::size_t thread) {
    Lane& lane = lanes_[thread].restart();
    const std::span<float> sum = lane.take(k.width);
    const std::span<float> line = lane.take(k.width);
    const std::size_t end = std::min(vocab, (task + 1) * kTokens);
    for (std::size_t token = task * kTokens; token < end; ++token) {
      const std::size_t begin = token == 0 ? 0 : first_[token - 1];
      if (begin == first_[token]) continue;
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (std::size_t i = begin; i < first_[token]; ++i) {
        widen(k.dy.subspan(position_[i] * k.width, k.width), line);
        rows_.add(line.data(), sum.data(), k.width);
      }
      const auto gradient = k.dwte.subspan(token * k.width, k.width);
      widen(gradient, line);
      rows_.add(line.data(), sum.data(), k.width);
      narrow(sum, gradient);
    }
  });
  workers_.run(k.tokens.context, [&](std::size_t place, std::size_t thread) {
    Lane& lane = lanes_[thread].restart();
    const std::span<float> sum = lane.take(k.width);
    const std::span<float> line = lane.take(k.width);
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (std::size_t row = 0; row < k.tokens.rows; ++row) {
      widen(k.dy.subspan((row * k.tokens.context + place) * k.width, k.width), line);
      rows_.add(line.data(), sum.data(), k.width);
    }
    narrow(sum, k.dwpe.subspan(place * k.width, k.width));
  });
}

// --- LayerNorm ----------------------------------------------------------------------------------

void HostOps::layernorm_forward(const LayerNormForward& k) {
  const std::size_t width = k.shape.width;
  workers_.run(divide_up(k.shape.rows, kRows), [&](std::size_t task, std::size_t thread) {
    Lane& lane = lanes_[thread].restart();
    const std::span<float> gain = lane.take(width);
    const std::span<float> bias = lane.take(width);
    const std::span<float> row = lane.take(width);
    widen(k.gain, gain);
    widen(k.bias, bias);
    for_rows(task, k.shape.rows, [&](std::size_t r) {
      widen(k.x.subspan(r * width, width), row);
      rows_.normalize(rows_.moments(row.data(), width), row.data(), width);
      rows_.gain_bias(gain.data(), bias.data(), row.data(), width);
      narrow(row, k.y.subspan(r * width, width));
    });
  });
}

void HostOps::layernorm_backward(const LayerNormBackward& k) {
  const std::size_t width = k.shape.width;
  workers_.run(divide_up(k.shape.rows, kRows), [&](std::size_t task, std::size_t thread) {
    Lane& lane = lanes_[thread].restart();
    const std::span<float> gain = lane.take(width);
    const std::span<float> x = lane.take(width);
    const std::span<float> dy = lane.take(width);
    widen(k.gain, gain);
    for_rows(task, k.shape.rows, [&](std::size_t r) {
      widen(k.x.subspan(r * width, width), x);
      widen(k.dy.subspan(r * width, width), dy);
      moments_[r] = rows_.moments(x.data(), width);
      rows_.normalize(moments_[r], x.data(), width);
      rows_.normalize_backward(x.data(), gain.data(), moments_[r].inverse_deviation, dy.data(),
                               width);
      if (!k.residual.empty()) {
        widen(k.residual.subspan(r * width, width), x);
        rows_.add(x.data(), dy.data(), width);
      }
      narrow(dy, k.dx.subspan(r * width, width));
    });
  });
  workers_.run(divide_up(width, kColumns), [&](std::size_t task, std::size_t thread) {
    Lane& lane = lanes_[thread].restart();
    const std::size_t col0 = task * kColumns;
    const std::size_t cols = std::min(kColumns, width - col0);
    const std::span<float> dgain = lane.take(cols), dbias = lane.take(cols);
    const std::span<float> x = lane.take(cols), dy = lane.take(cols);
    std::fill(dgain.begin(), dgain.end(), 0.0f);
    std::fill(dbias.begin(), dbias.end(), 0.0f);
    for (std::size_t r = 0; r < k.shape.rows; ++r) {
      widen(k.x.subspan(r * width + col0, cols), x);
      widen(k.dy.subspan(r * width + col0, cols), dy);
      rows_.normalize(moments_[r], x.data(), cols);
      rows_.add_product(x.data(), dy.data(), dgain.data(), cols);
      rows_.add(dy.data(), dbias.data(), cols);
    }
    narrow(dgain, k.dgain.subspan(col0, cols));
    narrow(dbias, k.dbias.subspan(col0, cols));
  });
}

// --- GELU ---------------------------------------------------------------------------------------

namespace {

/// Calls body(offset, count) for the pieces of a task.
template <class Body>
void for_pieces(std::size_t task, std::size_t elems, const Body& body) {
  const std::size_t end = std::min(elems, (task + 1) * kPieces * kGeluPiece);
  for (std::size_t at = task * kPieces * kGeluPiece; at < end; at += kGeluPiece) {
    body(at, std::min(kGeluPiece, end - at));
  }
}

}  // namespace

void HostOps::gelu_forward(const GeluForward& k) {
  workers_.run(divide_up(k.x.size(), kPieces * kGeluPiece),
               [&](std::size_t task, std::size_t thread) {
                 const std::span<float> piece = lanes_[thread].restart().take(kGeluPiece);
                 for_pieces(task, k.x.size(), [&](std::size_t at, std::size_t count) {
                   widen(k.x.subspan(at, count), piece);
                   rows_.gelu(piece.data(), count);
                   narrow(piece.first(count), k.y.subspan(at, count));
                 });
               });
}

void HostOps::gelu_backward(const GeluBackward& k) {
  workers_.run(divide_up(k.x.size(), kPieces * kGeluPiece),
               [&](std::size_t task, std::size_t thread) {
                 Lane& lane = lanes_[thread].restart();
                 const std::span<float> x = lane.take(kGeluPiece), dy = lane.take(kGeluPiece);
                 for_pieces(task, k.x.size(), [&](std::size_t at, std::size_t count) {
                   widen(k.x.subspan(at, count), x);
                   widen(k.dy.subspan(at, count), dy);
                   rows_.gelu_backward(x.data(), dy.data(), count);
                   narrow(dy.first(count), k.dx.subspan(at, count));
                 });
               });
}

}  // namespace gpt
