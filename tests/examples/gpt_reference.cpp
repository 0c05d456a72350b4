// SPDX-License-Identifier: Apache-2.0
#include "gpt_reference.hpp"

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

/// Where element `i` of head `h` at position `t` of a sequence is in a matrix of `parts` widths.
std::size_t at(const AttentionShape& s, std::size_t row, std::size_t t, std::size_t parts,
               std::size_t part, std::size_t h) {
  return ((row * s.context + t) * parts + part) * s.width() + h * s.head_width;
}

double dot(const double* a, const double* b, std::size_t count) {
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// softmax(q k^T / sqrt(d)) of one query.
Doubles probabilities(const AttentionShape& s, const Doubles& qkv, std::size_t row, std::size_t h,
                      std::size_t query) {
  Doubles p(query + 1);
  for (std::size_t key = 0; key <= query; ++key) {
    p[key] = dot(&qkv[at(s, row, query, 3, 0, h)], &qkv[at(s, row, key, 3, 1, h)], s.head_width) /
             std::sqrt(static_cast<double>(s.head_width));
  }
  const double top = *std::max_element(p.begin(), p.end());
  double sum = 0.0;
  for (double& value : p) sum += value = std::exp(value - top);
  for (double& value : p) value /= sum;
  return p;
}

template <class Body>
void for_queries(const AttentionShape& s, const Body& body) {
  for (std::size_t row = 0; row < s.rows; ++row) {
    for (std::size_t h = 0; h < s.heads; ++h) {
      for (std::size_t query = 0; query < s.context; ++query) body(row, h, query);
    }
  }
}

}  // namespace

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
  Doubles y(rows * out);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < out; ++o) y[r * out + o] = b[o];
    for (std::size_t i = 0; i < in; ++i) {
      for (std::size_t o = 0; o < out; ++o) y[r * out + o] += x[r * in + i] * w[i * out + o];
    }
  }
  return y;
}

LinearGradients linear_backward(const Doubles& x, const Doubles& w, const Doubles& dy) {
  // rows * in, in * out and rows * out are known: rows^2 = x dy / w.
  const auto rows = static_cast<std::size_t>(
      std::lround(std::sqrt(static_cast<double>(x.size()) * static_cast<double>(dy.size()) /
                            static_cast<double>(w.size()))));
  const std::size_t in = x.size() / rows, out = dy.size() / rows;
  LinearGradients d{Doubles(x.size()), Doubles(w.size()), Doubles(out)};
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < out; ++o) d.b[o] += dy[r * out + o];
    for (std::size_t i = 0; i < in; ++i) {
      for (std::size_t o = 0; o < out; ++o) {
        d.x[r * in + i] += dy[r * out + o] * w[i * out + o];
        d.w[i * out + o] += x[r * in + i] * dy[r * out + o];
      }
    }
  }
  return d;
}

Doubles attention(const AttentionShape& s, const Doubles& qkv) {
  Doubles out(s.rows * s.context * s.width());
  for_queries(s, [&](std::size_t row, std::size_t h, std::size_t query) {
    const Doubles p = probabilities(s, qkv, row, h, query);
    double* to = &out[at(s, row, query, 1, 0, h)];
    for (std::size_t key = 0; key <= query; ++key) {
      const double* v = &qkv[at(s, row, key, 3, 2, h)];
      for (std::size_t i = 0; i < s.head_width; ++i) to[i] += p[key] * v[i];
    }
  });
  return out;
}

Doubles attention_backward(const AttentionShape& s, const Doubles& qkv, const Doubles& dout) {
  Doubles d(qkv.size());
  const std::size_t width = s.head_width;
  for_queries(s, [&](std::size_t row, std::size_t h, std::size_t query) {
    const Doubles p = probabilities(s, qkv, row, h, query);
    const double* dy = &dout[at(s, row, query, 1, 0, h)];
    Doubles dp(query + 1);
    double mean = 0.0;
    for (std::size_t key = 0; key <= query; ++key) {
      dp[key] = dot(dy, &qkv[at(s, row, key, 3, 2, h)], width);
      mean += p[key] * dp[key];
    }
    for (std::size_t key = 0; key <= query; ++key) {
      const double ds = p[key] * (dp[key] - mean) / std::sqrt(static_cast<double>(width));
      const std::size_t q_at = at(s, row, query, 3, 0, h), k_at = at(s, row, key, 3, 1, h);
      const std::size_t v_at = at(s, row, key, 3, 2, h);
      for (std::size_t i = 0; i < width; ++i) {
        d[q_at + i] += ds * qkv[k_at + i];
        d[k_at + i] += ds * qkv[q_at + i];
        d[v_at + i] += p[key] * dy[i];
      }
    }
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
  for (std::size_t p = 0; p < positions; ++p) {
    Doubles z(vocab);
    for (std::size_t v = 0; v < vocab; ++v) z[v] = dot(&h[p * width], &wte[v * width], width);
    const double top = *std::max_element(z.begin(), z.end());
    double sum = 0.0;
    for (const double value : z) sum += std::exp(value - top);
    result.loss += top + std::log(sum) - z[tokens.target(p)];
    for (std::size_t v = 0; v < vocab; ++v) {
      const double d = std::exp(z[v] - top) / sum - (v == tokens.target(p) ? 1.0 : 0.0);
      for (std::size_t i = 0; i < width; ++i) {
        result.dh[p * width + i] += d * wte[v * width + i];
        result.dwte[v * width + i] += d * h[p * width + i];
      }
    }
  }
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

Parameters model_gradients(const GptShape& shape, const TokenRows& tokens,
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
  return d;
}

}  // namespace gpt::reference
