// SPDX-License-Identifier: Apache-2.0
/// Every operator against the double-precision reference, element by element: on the host with one
/// and with three threads, which must give the same bits; on a GPU where this binary has one.
#include "ops.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <optional>

#include "gpt_ops_flavours.hpp"
#include "gpt_reference.hpp"
#include "gpt_support.hpp"
#include "presets.hpp"

namespace gpt {
namespace {

using reference::Doubles;
using test::exact;
using test::expect_rounded;
using test::Halves;
using test::random_halves;
using test::sum_error;
using test::unwritten;

/// Large enough for every call of these tests.
GptShape limits() {
  return {.layers = 1, .width = 640, .heads = 4, .context = 300, .vocab = 900, .batch = 3};
}

class GptOps : public testing::TestWithParam<test::OpsFlavour> {
 protected:
  void SetUp() override {
    if (!GetParam().make) GTEST_SKIP() << GetParam().why_not;
    ops_ = GetParam().make(limits());
  }
  Halves halves(std::size_t count, double bound = 1.0) {
    return random_halves(count, bound, random_);
  }
  example::Random random_{11};
  std::unique_ptr<Ops> ops_;
};
INSTANTIATE_TEST_SUITE_P(Every, GptOps, testing::ValuesIn(test::ops_flavours()),
                         [](const auto& tested) { return tested.param.name; });

/// Sizes on, beside and far from the borders of tiles.
constexpr LinearShape kLinear[] = {{1, 1, 1},       {3, 5, 7},      {2, 300, 1},
                                   {130, 257, 129}, {600, 64, 300}, {257, 520, 513}};

TEST_P(GptOps, LinearForward) {
  for (const LinearShape& s : kLinear) {
    const Halves x = halves(s.rows * s.in), w = halves(s.in * s.out, 0.5), b = halves(s.out);
    const Halves residual = halves(s.rows * s.out);
    for (const bool with_residual : {false, true}) {
      Halves y = unwritten(s.rows * s.out);
      ops_->linear_forward({s, x, w, b, with_residual ? residual : Halves{}, y});
      Doubles want = reference::linear(exact(x), exact(w), exact(b));
      if (with_residual) want = reference::add(want, exact(residual));
      expect_rounded(y, want, sum_error(s.in), "y of " + std::to_string(s.rows));
    }
  }
}

TEST_P(GptOps, LinearBackward) {
  for (const LinearShape& s : kLinear) {
    const Halves x = halves(s.rows * s.in), w = halves(s.in * s.out, 0.5);
    const Halves dy = halves(s.rows * s.out);
    Halves dx = unwritten(x.size()), dw = unwritten(w.size()), db = unwritten(s.out);
    ops_->linear_backward_weight({s, x, dy, dw, db});
    ops_->linear_backward_input({s, dy, w, dx});
    const auto want = reference::linear_backward(exact(x), exact(w), exact(dy));
    expect_rounded(dx, want.x, sum_error(s.out), "dx");
    expect_rounded(dw, want.w, sum_error(s.rows), "dw");
    expect_rounded(db, want.b, sum_error(s.rows, 8.0), "db");
  }
}

TEST_P(GptOps, LayerNorm) {
  for (const RowShape s : {RowShape{1, 1}, {3, 7}, {65, 96}, {500, 130}, {40, 640}}) {
    const std::size_t count = s.rows * s.width;
    Halves x = halves(count, 2.0);
    for (Half& half : x) half = outboard::half_from_float(outboard::half_to_float(half) + 3.0f);
    const Halves gain = test::random_gains(s.width, random_), bias = halves(s.width);
    const Halves dy = halves(count), residual = halves(count);
    Halves y = unwritten(count), dgain = unwritten(s.width), dbias = unwritten(s.width);
    ops_->layernorm_forward({s, x, gain, bias, y});
    // FP32 loses about 3 * 2^-23 of the mean, times the inverse deviation.
    const double lost = s.width == 1 ? 1e-3 : 1e-5;
    expect_rounded(y, reference::layernorm(exact(x), exact(gain), exact(bias)), lost, "y");
    const auto want = reference::layernorm_backward(exact(x), exact(gain), exact(dy));
    Halves dx = unwritten(count);
    ops_->layernorm_backward({s, x, gain, dy, {}, dx, dgain, dbias});
    expect_rounded(dx, want.x, lost, "dx");
    const double sum_lost = lost * static_cast<double>(s.rows);
    expect_rounded(dgain, want.gain, sum_lost, "dgain");
    expect_rounded(dbias, want.bias, sum_error(s.rows, 8.0), "dbias");
    Halves in_place = residual;
    ops_->layernorm_backward({s, x, gain, dy, in_place, in_place, dgain, dbias});
    expect_rounded(in_place, reference::add(want.x, exact(residual)), lost, "dx + residual");
  }
}

constexpr AttentionShape kAttention[] = {
    {1, 1, 1, 1}, {2, 5, 2, 3}, {1, 64, 1, 16}, {2, 65, 3, 8}, {1, 200, 2, 32}};

TEST_P(GptOps, Attention) {
  for (const AttentionShape& s : kAttention) {
    const std::size_t positions = s.rows * s.context;
    const Halves qkv = halves(positions * 3 * s.width(), 2.0), dout = halves(positions * s.width());
    Halves out = unwritten(dout.size()), dqkv = unwritten(qkv.size());
    ops_->attention_forward({s, qkv, out});
    expect_rounded(out, reference::attention(s, exact(qkv)), 2e-6, "out");
    ops_->attention_backward({s, qkv, dout, dqkv});
    expect_rounded(dqkv, reference::attention_backward(s, exact(qkv), exact(dout)),
                   1e-6 * static_cast<double>(s.context), "dqkv");
  }
}

TEST_P(GptOps, AttentionOfLargeScoresStaysFinite) {
  const AttentionShape s{1, 3, 1, 2};
  // Scores of thousands: exp of them alone would overflow.
  const Halves qkv(3 * 6, outboard::half_from_float(60.0f));
  Halves out = unwritten(3 * 2);
  ops_->attention_forward({s, qkv, out});
  for (const Half half : out) EXPECT_EQ(half, outboard::half_from_float(60.0f));
}

TEST_P(GptOps, AttentionSeesNoLaterPosition) {
  const AttentionShape s{1, 70, 1, 4};
  Halves qkv = halves(70 * 12), out = unwritten(70 * 4), again = unwritten(70 * 4);
  ops_->attention_forward({s, qkv, out});
  for (std::size_t i = 40 * 12; i < qkv.size(); ++i) qkv[i] = outboard::half_from_float(9.0f);
  ops_->attention_forward({s, qkv, again});
  for (std::size_t i = 0; i < 40 * 4; ++i) ASSERT_EQ(out[i], again[i]) << i;
  EXPECT_NE(out, again);
}

TEST_P(GptOps, Gelu) {
  Halves x;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<Half>(bits);
    if (std::abs(outboard::half_to_float(half)) < 20.0f) x.push_back(half);
  }
  const Halves dy = halves(x.size());
  Halves y = unwritten(x.size()), dx = dy;
  ops_->gelu_forward({x, y});
  ops_->gelu_backward({x, dx, dx});
  expect_rounded(y, reference::gelu(exact(x)), 1e-7, "y");
  expect_rounded(dx, reference::gelu_backward(exact(x), exact(dy)), 4e-6, "dx");
}

TEST_P(GptOps, Embedding) {
  for (const GptShape& s : {GptShape{.width = 5, .context = 3, .vocab = 7, .batch = 2},
                            GptShape{.width = 130, .context = 300, .vocab = 900, .batch = 3}}) {
    const auto list = test::random_tokens(s.batch * s.row_tokens(), s.vocab, random_);
    const TokenRows tokens{list, s.batch, s.context};
    const Halves wte = halves(s.vocab * s.width), wpe = halves(s.context * s.width);
    const Halves dy = halves(tokens.positions() * s.width), before = halves(wte.size());
    Halves out = unwritten(dy.size()), dwte = before, dwpe = unwritten(wpe.size());
    ops_->embed_forward({tokens, s.width, wte, wpe, out});
    expect_rounded(out, reference::embed(tokens, exact(wte), exact(wpe)), 0.0, "out");
    ops_->embed_backward({tokens, s.width, dy, dwte, dwpe});
    Doubles want_wte = exact(before), want_wpe(wpe.size());
    reference::embed_backward(tokens, exact(dy), want_wte, want_wpe);
    expect_rounded(dwte, want_wte, sum_error(tokens.positions() / s.vocab * 4), "dwte");
    expect_rounded(dwpe, want_wpe, sum_error(s.batch), "dwpe");
  }
}

TEST_P(GptOps, Loss) {
  // One and several tiles of the vocabulary, of the positions and of the width.
  for (const GptShape& s : {GptShape{.width = 8, .context = 3, .vocab = 5, .batch = 1},
                            GptShape{.width = 64, .context = 150, .vocab = 256, .batch = 2},
                            GptShape{.width = 300, .context = 50, .vocab = 700, .batch = 3}}) {
    const auto list = test::random_tokens(s.batch * s.row_tokens(), s.vocab, random_);
    const Halves h = halves(s.positions(s.batch) * s.width), wte = halves(s.vocab * s.width, 0.3);
    const Head head{{list, s.batch, s.context}, s.width, s.vocab, h, wte};
    reference::LossResult want = reference::loss(head.tokens, exact(h), exact(wte));
    std::vector<float> log_sum(s.positions(s.batch));
    Halves dh = unwritten(h.size()), dwte = unwritten(wte.size());
    const double loss = ops_->loss_forward({head, log_sum, std::nullopt, {}});
    EXPECT_NEAR(loss, want.loss, 1e-6 * want.loss);
    constexpr float kScale = 64.0f;
    EXPECT_EQ(ops_->loss_forward({head, log_sum, kScale, dh}), loss);
    ops_->loss_backward_table({head, log_sum, kScale, dwte});
    for (double& value : want.dh) value *= static_cast<double>(kScale);
    for (double& value : want.dwte) value *= static_cast<double>(kScale);
    // Of a gradient near 1 FP16 loses 2^-12, in every term.
    const bool rounds = GetParam().rounds_logits;
    const double lost = rounds ? 0x1p-12 : 2e-6;
    expect_rounded(dh, want.dh, 64 * lost, "dh");
    expect_rounded(dwte, want.dwte, 64 * (rounds ? 8 * lost : 1e-5), "dwte");
    Halves one(h.begin() + 2 * static_cast<std::ptrdiff_t>(s.width),
               h.begin() + 3 * static_cast<std::ptrdiff_t>(s.width));
    std::vector<float> logits(s.vocab);
    ops_->logits({s.width, s.vocab, one, wte, logits});
    const Doubles row = exact(one), table = exact(wte);
    for (std::size_t v = 0; v < s.vocab; ++v) {
      double dot = 0.0;
      for (std::size_t i = 0; i < s.width; ++i) dot += row[i] * table[v * s.width + i];
      ASSERT_NEAR(static_cast<double>(logits[v]), dot, sum_error(s.width)) << v;
    }
  }
}

TEST_P(GptOps, NonFiniteValuesSpread) {
  const AttentionShape s{1, 2, 1, 2};
  const LinearShape l{2, 2, 2};
  for (const Half bad : {Half{0x7E00}, Half{0x7C00}}) {
    Halves x{bad, 0, 0, 0}, w = halves(4), out(4);
    ops_->linear_forward({l, x, w, Halves(2), {}, out});
    EXPECT_GE(out[0] & 0x7FFF, 0x7C00);
    ops_->layernorm_forward({{2, 2}, x, Halves(2, 0x3C00), Halves(2), out});
    EXPECT_GT(out[0] & 0x7FFF, 0x7C00);
    ops_->gelu_forward({x, out});
    EXPECT_GE(out[0] & 0x7FFF, 0x7C00);
    Halves qkv = halves(12);
    qkv[0] = bad;
    ops_->attention_forward({s, qkv, out});
    EXPECT_GT(out[0] & 0x7FFF, 0x7C00);
    const std::vector<Token> list{0, 1, 1};
    std::vector<float> log_sum(2);
    Halves dh(4);
    const double loss = ops_->loss_forward({{{list, 1, 2}, 2, 2, x, w}, log_sum, 1.0f, dh});
    EXPECT_FALSE(std::isfinite(loss));
    EXPECT_GT(dh[0] & 0x7FFF, 0x7C00);
  }
}

TEST(GptOpsThreads, GiveTheSameBits) {
  std::vector<Halves> first;
  for (const std::size_t threads : {1u, 2u, 5u}) {
    example::Random random(3);
    const auto ops = make_host_ops(limits(), threads);
    const LinearShape s{600, 300, 513};
    const Halves x = random_halves(s.rows * s.in, 1.0, random);
    const Halves w = random_halves(s.in * s.out, 1.0, random);
    const Halves dy = random_halves(s.rows * s.out, 1.0, random);
    const Halves gain = test::random_gains(s.in, random);
    std::vector<Halves> all{Halves(dy.size()), Halves(w.size()), Halves(s.out), Halves(x.size()),
                            Halves(x.size()),  Halves(s.in),     Halves(s.in)};
    ops->linear_forward({s, x, w, Halves(s.out), {}, all[0]});
    ops->linear_backward_weight({s, x, dy, all[1], all[2]});
    ops->linear_backward_input({s, dy, w, all[3]});
    ops->layernorm_backward({{s.rows, s.in}, x, gain, all[3], {}, all[4], all[5], all[6]});
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << threads << " threads";
  }
}

TEST(GptOpsScratch, StaysUnderEightMebibytesAThreadForEveryPresetsShape) {
  std::vector<GptShape> shapes{
      {.layers = 1, .width = 8192, .heads = 128, .context = 4096, .vocab = 65536},
      {.layers = 1, .width = 8192, .heads = 64, .context = 2048, .vocab = 50257},
      {.layers = 1, .width = 64, .heads = 1, .context = 8}};
  for (const Preset& preset : presets()) shapes.push_back(preset.shape);
  for (const GptShape& shape : shapes) {
    SCOPED_TRACE(testing::Message() << shape.width << " " << shape.context);
    shape.validate();
    const auto one = make_host_ops(shape, 1), three = make_host_ops(shape, 3);
    const std::size_t said = thread_scratch_bytes(shape);
    EXPECT_LE(said, std::size_t{8} << 20);
    EXPECT_EQ(one->thread_scratch_bytes(), said);
    EXPECT_EQ(three->thread_scratch_bytes(), said);
    EXPECT_EQ(three->scratch_bytes() - one->scratch_bytes(), 2 * said);
  }
}

}  // namespace
}  // namespace gpt
