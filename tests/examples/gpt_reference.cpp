// SPDX-License-Identifier: Apache-2.0
#include "gpt_reference.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gpt::reference {
namespace {

const double kRoot = std::sqrt(2.0 / std::numbers::pi);

struct Normalized {
  Doubles x;
  double inverse_deviation;
};

Normalized normalize(const double* x, std::size_t width) {
  double mean = 0.0, variance = 0.0;
  for (std::size_t i = 0; i < width; ++i) mean += x[i];
  mean /= static_cast<double>(width);
  for (std::size_t i = 0; i < width; ++i) variance += (x[i] - mean) * (x[i] - mean);
  variance /= static_cast<double>(width);
  Normalized row{Doubles(width),
                 1.0 / std::sqrt(variance + static_cast<double>(kLayerNormEpsilon))};
  for (std::size_t i = 0; i < width; ++i) row.x[i] = (x[i] - mean) * row.inverse_deviation;
  return row;
}

double dot(const double* a, const double* b, std::size_t count) {
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// One head of one sequence as matrices of context x head_width. Rows of q, k and v are three
/// widths apart, those of what attention gives one.
struct HeadPlace {
  std::size_t wide, narrow;  // where q begins in qkv, and the head's part of the output
};

template <class Body>
void for_heads(const AttentionShape& s, const Body& body) {
  for (std::size_t row = 0; row < s.rows; ++row) {
    for (std::size_t h = 0; h < s.heads; ++h) {
      const std::size_t position = row * s.context * s.width(), col = h * s.head_width;
      body(HeadPlace{3 * position + col, position + col});
    }
  }
}

/// softmax(q k^T / sqrt(d)) of one head, context x context, 0 where a key is later than the query.
Doubles probabilities(const AttentionShape& s, const double* q, const double* k) {
  Doubles p(s.context * s.context);
  product({s.context, s.context, s.head_width}, {q, 3 * s.width()}, {k, 3 * s.width(), true},
          {p.data(), s.context});
  for (std::size_t query = 0; query < s.context; ++query) {
    double* const row = &p[query * s.context];
    for (std::size_t key = 0; key <= query; ++key) {
      row[key] /= std::sqrt(static_cast<double>(s.head_width));
    }
    const double top = *std::max_element(row, row + query + 1);
    double sum = 0.0;
    for (std::size_t key = 0; key <= query; ++key) sum += row[key] = std::exp(row[key] - top);
    for (std::size_t key = 0; key <= query; ++key) row[key] /= sum;
    std::fill(row + query + 1, row + s.context, 0.0);
  }
  return p;
}

}  // namespace

void product(const ProductShape& shape, const Factor& a, const Factor& b, const Result& c) {
  const auto as_int = [](std::size_t value) { return static_cast<int>(value); };
  const auto way = [](const Factor& f) { return f.transposed ? CblasTrans : CblasNoTrans; };
  cblas_dgemm(CblasRowMajor, way(a), way(b), as_int(shape.rows), as_int(shape.cols),
              as_int(shape.depth), 1.0, a.values, as_int(a.stride), b.values, as_int(b.stride),
              c.keep ? 1.0 : 0.0, c.values, as_int(c.stride));
}

Doubles embed(const TokenRows& tokens, const Doubles& wte, const Doubles& wpe) {
  const std::size_t width = wpe.size() / tokens.context;
  Doubles out;
  for (std::size_t p = 0; p < tokens.positions(); ++p) {
    for (std::size_t i = 0; i < width; ++i) {
      out.push_back(wte[tokens.input(p) * width + i] + wpe[p % tokens.context * width + i]);
    }
  }
  return out;
}

void embed_backward(const TokenRows& tokens, const Doubles& dy, Doubles& dwte, Doubles& dwpe) {
  const std::size_t width = dwpe.size() / tokens.context;
  for (std::size_t p = 0; p < tokens.positions(); ++p) {
    for (std::size_t i = 0; i < width; ++i) {
      dwte[tokens.input(p) * width + i] += dy[p * width + i];
      dwpe[p % tokens.context * width + i] += dy[p * width + i];
    }
  }
}

Doubles layernorm(const Doubles& x, const Doubles& gain, const Doubles& bias) {
  const std::size_t width = gain.size();
  Doubles y(x.size());
  for (std::size_t r = 0; r < x.size(); r += width) {
    const Normalized row = normalize(&x[r], width);
    for (std::size_t i = 0; i < width; ++i) y[r + i] = row.x[i] * gain[i] + bias[i];
  }
  return y;
}

NormalGradients layernorm_backward(const Doubles& x, const Doubles& gain, const Doubles& dy) {
  const std::size_t width = gain.size();
  NormalGradients d{Doubles(x.size()), Doubles(width), Doubles(width)};
  for (std::size_t r = 0; r < x.size(); r += width) {
    const Normalized row = normalize(&x[r], width);
    double mean = 0.0, slope = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      mean += dy[r + i] * gain[i] / static_cast<double>(width);
      slope += dy[r + i] * gain[i] * row.x[i] / static_cast<double>(width);
      d.gain[i] += dy[r + i] * row.x[i];
      d.bias[i] += dy[r + i];
    }
    for (std::size_t i = 0; i < width; ++i) {
      d.x[r + i] = row.inverse_deviation * (dy[r + i] * gain[i] - mean - row.x[i] * slope);
    }
  }
  return d;
}

Doubles linear(const Doubles& x, const Doubles& w, const Doubles& b) {
  const std::size_t out = b.size(), in = w.size() / out, rows = x.size() / in;
  Doubles y;
  for (std::size_t r = 0; r < rows; ++r) y.insert(y.end(), b.begin(), b.end());
  product({rows, out, in}, {x.data(), in}, {w.data(), out}, {y.data(), out, true});
  return y;
}

LinearGradients linear_backward(const Doubles& x, const Doubles& w, const Doubles& dy) {
  // rows * in, in * out and rows * out are known: rows^2 = x dy / w.
  const auto rows = static_cast<std::size_t>(
      std::lround(std::sqrt(static_cast<double>(x.size()) * static_cast<double>(dy.size()) /
                            static_cast<double>(w.size()))));
  const std::size_t in = x.size() / rows, out = dy.size() / rows;
  LinearGradients d{Doubles(x.size()), Doubles(w.size()), Doubles(out)};
  for (std::size_t i = 0; i < dy.size(); ++i) d.b[i % out] += dy[i];
  product({rows, in, out}, {dy.data(), out}, {w.data(), out, true}, {d.x.data(), in});
  product({in, out, rows}, {x.data(), in, true}, {dy.data(), out}, {d.w.data(), out});
  return d;
}

Doubles attention(const AttentionShape& s, const Doubles& qkv) {
  Doubles out(s.rows * s.context * s.width());
  const std::size_t width = s.width();
  for_heads(s, [&](const HeadPlace& head) {
    const double *q = &qkv[head.wide], *k = q + width, *v = k + width;
    const Doubles p = probabilities(s, q, k);
    product({s.context, s.head_width, s.context}, {p.data(), s.context}, {v, 3 * width},
            {&out[head.narrow], width});
  });
  return out;
}

Doubles attention_backward(const AttentionShape& s, const Doubles& qkv, const Doubles& dout) {
  Doubles d(qkv.size());
  const std::size_t n = s.context, width = s.width(), wide = 3 * width;
  for_heads(s, [&](const HeadPlace& head) {
    const double *q = &qkv[head.wide], *k = q + width, *v = k + width, *dy = &dout[head.narrow];
    double *dq = &d[head.wide], *dk = dq + width, *dv = dk + width;
    const Doubles p = probabilities(s, q, k);
    Doubles ds(n * n);
    product({n, n, s.head_width}, {dy, width}, {v, wide, true}, {ds.data(), n});
    for (std::size_t query = 0; query < n; ++query) {
      double* const row = &ds[query * n];
      const double mean = dot(row, &p[query * n], n);
      for (std::size_t key = 0; key < n; ++key) {
        row[key] =
            p[query * n + key] * (row[key] - mean) / std::sqrt(static_cast<double>(s.head_width));
      }
    }
    product({n, s.head_width, n}, {ds.data(), n}, {k, wide}, {dq, wide});
    product({n, s.head_width, n}, {ds.data(), n, true}, {q, wide}, {dk, wide});
    product({n, s.head_width, n}, {p.data(), n, true}, {dy, width}, {dv, wide});
  });
  return d;
}

Doubles gelu(const Doubles& x) {
  Doubles y;
  for (const double v : x) {
    y.push_back(0.5 * v * (1.0 + std::tanh(kRoot * (v + 0.044715 * v * v * v))));
  }
  return y;
}

Doubles gelu_backward(const Doubles& x, const Doubles& dy) {
  Doubles dx(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i], t = std::tanh(kRoot * (v + 0.044715 * v * v * v));
    const double slope = kRoot * (1.0 + 3.0 * 0.044715 * v * v);
    dx[i] = dy[i] * (0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * slope);
  }
  return dx;
}

LossResult loss(const TokenRows& tokens, const Doubles& h, const Doubles& wte) {
  const std::size_t positions = tokens.positions(), width = h.size() / positions;
  const std::size_t vocab = wte.size() / width;
  LossResult result{0.0, Doubles(h.size()), Doubles(wte.size())};
  Doubles z(positions * vocab);  // the logits, then their gradient
  product({positions, vocab, width}, {h.data(), width}, {wte.data(), width, true},
          {z.data(), vocab});
  for (std::size_t p = 0; p < positions; ++p) {
    double* const row = &z[p * vocab];
    const double top = *std::max_element(row, row + vocab), hit = row[tokens.target(p)];
    double sum = 0.0;
    for (std::size_t v = 0; v < vocab; ++v) sum += row[v] = std::exp(row[v] - top);
    for (std::size_t v = 0; v < vocab; ++v) row[v] /= sum;
    row[tokens.target(p)] -= 1.0;
    result.loss += top + std::log(sum) - hit;
  }
  product({positions, width, vocab}, {z.data(), vocab}, {wte.data(), width},
          {result.dh.data(), width});
  product({vocab, width, positions}, {z.data(), vocab, true}, {h.data(), width},
          {result.dwte.data(), width});
  return result;
}

Doubles add(Doubles a, const Doubles& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// --- the model
// ------------------------------------------------------------------------------------

namespace {

struct Inside {
  Doubles x, normal1, qkv, attended, middle, normal2, up, active, out;
};

AttentionShape attention_shape(const GptShape& shape, std::size_t rows) {
  return {rows, shape.context, shape.heads, shape.head_width()};
}

/// `p`: the block's twelve parameters.
Inside block_forward(const AttentionShape& shape, const Doubles& x, const Doubles* p) {
  Inside in;
  in.x = x;
  in.normal1 = layernorm(x, p[0], p[1]);
  in.qkv = linear(in.normal1, p[2], p[3]);
  in.attended = attention(shape, in.qkv);
  in.middle = add(linear(in.attended, p[4], p[5]), x);
  in.normal2 = layernorm(in.middle, p[6], p[7]);
  in.up = linear(in.normal2, p[8], p[9]);
  in.active = gelu(in.up);
  in.out = add(linear(in.active, p[10], p[11]), in.middle);
  return in;
}

/// @return the gradient of the block's input; `d` takes those of its parameters.
Doubles block_backward(const AttentionShape& shape, const Inside& in, const Doubles* p,
                       const Doubles& dout, Doubles* d) {
  LinearGradients down = linear_backward(in.active, p[10], dout);
  LinearGradients up = linear_backward(in.normal2, p[8], gelu_backward(in.up, down.x));
  NormalGradients normal2 = layernorm_backward(in.middle, p[6], up.x);
  const Doubles dmiddle = add(normal2.x, dout);
  LinearGradients project = linear_backward(in.attended, p[4], dmiddle);
  LinearGradients qkv =
      linear_backward(in.normal1, p[2], attention_backward(shape, in.qkv, project.x));
  NormalGradients normal1 = layernorm_backward(in.x, p[0], qkv.x);
  Doubles* const order[] = {&normal1.gain, &normal1.bias, &qkv.w, &qkv.b, &project.w, &project.b,
                            &normal2.gain, &normal2.bias, &up.w,  &up.b,  &down.w,    &down.b};
  for (std::size_t i = 0; i < 12; ++i) d[i] = *order[i];
  return add(normal1.x, dmiddle);
}

struct Forward {
  std::vector<Inside> blocks;
  Doubles last, normal;
};

Forward forward(const GptShape& shape, const TokenRows& tokens, const Parameters& parameters) {
  Forward f;
  f.last = embed(tokens, parameters[0], parameters[1]);
  for (std::size_t i = 0; i < shape.layers; ++i) {
    f.blocks.push_back(
        block_forward(attention_shape(shape, tokens.rows), f.last, &parameters[2 + 12 * i]));
    f.last = f.blocks.back().out;
  }
  f.normal = layernorm(f.last, parameters[parameters.size() - 2], parameters.back());
  return f;
}

}  // namespace

double model_loss(const GptShape& shape, const TokenRows& tokens, const Parameters& parameters) {
  return loss(tokens, forward(shape, tokens, parameters).normal, parameters[0]).loss;
}

ModelResult model_step(const GptShape& shape, const TokenRows& tokens,
                       const Parameters& parameters) {
  const Forward f = forward(shape, tokens, parameters);
  Parameters d(parameters.size());
  LossResult end = loss(tokens, f.normal, parameters[0]);
  NormalGradients normal = layernorm_backward(f.last, parameters[parameters.size() - 2], end.dh);
  d[parameters.size() - 2] = normal.gain;
  d.back() = normal.bias;
  Doubles dx = normal.x;
  for (std::size_t i = shape.layers; i-- > 0;) {
    dx = block_backward(attention_shape(shape, tokens.rows), f.blocks[i], &parameters[2 + 12 * i],
                        dx, &d[2 + 12 * i]);
  }
  d[0] = end.dwte;
  d[1].resize(parameters[1].size());
  embed_backward(tokens, dx, d[0], d[1]);
  return {end.loss, d};
}

Parameters model_gradients(const GptShape& shape, const TokenRows& tokens,
                           const Parameters& parameters) {
  return model_step(shape, tokens, parameters).gradients;
}

}  // namespace gpt::reference
