// SPDX-License-Identifier: Apache-2.0
/// Every line of every rule against its own double reference, in every format.
#include "tests/simd/update_support.hpp"

namespace outboard::simd::testing {
namespace {

class AccuracyOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(AccuracyOnEveryTarget);

/// Within `ulps` of the line's scale, or infinite where a float has to be.
::testing::AssertionResult near(float actual, const reference::Line& line, double ulps) {
  const double most = ulps * ulp(line.scale) + line.lost;
  const double error = static_cast<double>(actual) - line.value;
  if (std::fabs(line.value) > static_cast<double>(FLT_MAX)) {
    if (std::isinf(actual) || std::fabs(actual) == FLT_MAX) return ::testing::AssertionSuccess();
  } else if (std::fabs(error) <= most) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << actual << " is not " << line.value << ": off by "
                                       << error / ulp(line.scale) << " ulp of " << line.scale;
}

constexpr float kEmaRate = 0.01F;

struct Case {
  const RuleScalars& rule;
  const Tensor& old;
  const Tensor& now;
};

std::string describe(const Tensor& old, std::size_t i) {
  std::ostringstream text;
  text << "element " << i << ": p " << old.param[i] << " states " << old.state[0][i] << " "
       << old.state[1][i] << " g " << reference::element_value(old.stored(), i);
  return text.str();
}

template <class Scalars>
void expect_element(const Scalars& s, const Case& c, std::size_t i) {
  const reference::Element old = {c.old.param[i], {c.old.state[0][i], c.old.state[1][i]}};
  const reference::Element now = {c.now.param[i], {c.now.state[0][i], c.now.state[1][i]}};
  const double stored = reference::element_value(c.old.stored(), i);
  const double grad = reference::gradient(s, stored, old.param);
  for (std::size_t which = 0; which < reference::kStates<Scalars>; ++which) {
    const reference::Line line = reference::state_line(s, which, old.state[which], grad);
    ASSERT_TRUE(near(c.now.state[which][i], line, 4.0)) << "state " << which;
  }
  reference::Line line = reference::update_line(s, old, now, grad);
  line.value = old.param - line.value;
  line.scale = std::fmax(std::fabs(old.param), line.scale);
  ASSERT_TRUE(near(c.now.param[i], line, 8.0)) << "param";
  ASSERT_EQ(c.now.weight_bits(i), nearest_element(c.now.weight_format, c.now.param[i]));
  const double way = reference::read(reference::sum(now.param, -c.old.ema[i]), reference::kTiny);
  const auto ema = reference::two_terms(c.old.ema[i], static_cast<double>(kEmaRate) * way);
  ASSERT_TRUE(near(c.now.ema[i], ema, 4.0)) << "ema";
}

void expect_each_line(const Case& c) {
  std::visit(
      [&](const auto& scalars) {
        for (std::size_t i = 0; i < c.old.size(); ++i) {
          expect_element(scalars, c, i);
          if (::testing::Test::HasFatalFailure()) FAIL() << describe(c.old, i);
        }
      },
      c.rule);
}

const std::vector<Hyper>& hypers() {
  static const std::vector<Hyper> list = {
      {},
      {.step = 1000, .coeff = 1.0 / 65536.0},
      {.lr = 0.1, .weight_decay = 0.5, .coeff = 0.37},
      {.lr = 2e-6, .weight_decay = 0.01, .step = 20000, .coeff = 1e-6},
      {.beta1 = 0.0, .beta2 = 0.5, .step = 3, .coeff = 0x1p-24},
      {.beta1 = 0.95,
       .beta2 = 0.9999,
       .eps = 1e-15,
       .weight_decay = 0.0,
       .step = 7,
       .coeff = 0x1p-90},
      {.lr = 1.0, .beta1 = 0.999, .beta2 = 0.99, .eps = 1e-3, .step = 2, .coeff = 1e-12},
  };
  return list;
}

std::vector<float> with_signs(std::vector<float> values) {
  const std::size_t size = values.size();
  for (std::size_t i = 0; i < size; ++i) values.push_back(-values[i]);
  return values;
}
std::vector<float> with_neighbours(const std::vector<float>& values) {
  std::vector<float> all;
  for (const float value : values) {
    all.insert(all.end(), {std::nextafter(value, 0.0F), value, std::nextafter(value, INFINITY)});
  }
  return all;
}

/// Where AdamW's line v starts to read its operands; the other rules' floors are constants.
std::array<float, 2> floors(const RuleScalars& rule) {
  return std::visit(
      [](const auto& s) -> std::array<float, 2> {
        if constexpr (requires { s.exp_avg_sq_floor; }) {
          return {s.exp_avg_sq_floor, s.grad_sq_floor};
        } else {
          return {FLT_MIN, 0x1p-63F};
        }
      },
      rule);
}

/// The nearest finite element.
std::uint32_t stored_bits(Format format, float value) {
  const std::uint32_t bits = nearest_element(format, value);
  return format == Format::f16 && (bits & 0x7C00U) == 0x7C00U ? bits - 1 : bits;
}

/// Values chosen to hurt each operand, mixed at random so that each meets each.
void fill_hurting(Tensor& tensor, Random& random, const RuleScalars& rule, double coeff) {
  const auto [square_floor, grad_floor] = floors(rule);
  const std::vector<float> params = with_signs(with_neighbours(
      {0.0F, FLT_TRUE_MIN, 0x1.8p-130F, FLT_MIN, 0x1p-100F, 1e-8F, 0x1p-24F, 0x1p-25F, 0x1.8p-25F,
       1.0F, 2048.5F, 65504.0F, 65520.0F, 65536.0F, 1e30F, 0x1.FEp126F}));
  const std::vector<float> moments =
      with_signs(with_neighbours({0.0F, FLT_TRUE_MIN, 0x1.234p-127F, FLT_MIN, 0x1p-100F, 1e-20F,
                                  1e-3F, 1.0F, 65504.0F, 1e30F}));
  const std::vector<float> squares = with_neighbours(
      {0.0F, FLT_TRUE_MIN, 0x1.8p-127F, FLT_MIN, square_floor, 1e-30F, 1e-8F, 1.0F, 4e9F, 1e37F});
  const auto scaled = static_cast<float>(std::min(grad_floor / coeff, 1e30));
  const auto tiny = static_cast<float>(std::min(0x1p-100 / coeff, 1e30));
  const std::vector<float> grads = with_signs(with_neighbours(
      {0.0F, FLT_TRUE_MIN, FLT_MIN, 0x1p-24F, 0x1p-14F, scaled, tiny, 1e-20F, 1.0F, 0.333F, 6e4F}));
  const bool squared_first = std::holds_alternative<AdagradScalars>(rule);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const bool listed = random.below(4) != 0;
    tensor.set_grad(i, listed ? stored_bits(tensor.grad_format, random.pick(grads))
                              : finite_bits(random, tensor.grad_format));
    tensor.param[i] = listed ? random.pick(params) : random.spread(-149, 100);
    tensor.ema[i] = random.below(4) == 0 ? tensor.param[i] : random.pick(params);
    tensor.state[0][i] = listed ? random.pick(moments) : random.spread(-149, 60);
    tensor.state[1][i] = std::fabs(listed ? random.pick(squares) : random.spread(-149, 100));
    if (squared_first) std::swap(tensor.state[0][i], tensor.state[1][i]);
  }
}

/// Puts moments where their term all but cancels the gradient's.
void make_cancelling(Tensor& tensor, Random& random, const RuleScalars& rule) {
  std::visit(
      [&](const auto& s) {
        if constexpr (requires { s.one_minus_beta1; }) {
          if (s.beta1 == 0.0F) return;
          for (std::size_t i = 0; i < tensor.size(); i += 1 + random.below(16)) {
            const double stored = reference::element_value(tensor.stored(), i);
            const double grad = reference::gradient(s, stored, tensor.param[i]);
            const double moment = -grad * static_cast<double>(s.one_minus_beta1) / s.beta1;
            tensor.state[0][i] = std::nextafter(static_cast<float>(moment),
                                                static_cast<float>(random.below(3)) - 1.0F);
          }
        }
      },
      rule);
}

void expect_accurate(const Hyper& hyper, bool hurting, Random& random) {
  for (const RuleCase& rule : every_rule(hyper)) {
    for (const Format grad : kFormats) {
      for (const Format weight : kFormats) {
        SCOPED_TRACE(rule.name + " " + format_name(grad) + " to " + format_name(weight) +
                     ", coeff " + std::to_string(hyper.coeff));
        Tensor old(1003, grad, weight);
        fill_ordinary(old, random);
        make_states_legal(old, rule.scalars);
        if (hurting) {
          fill_hurting(old, random, rule.scalars, hyper.coeff);
          make_cancelling(old, random, rule.scalars);
        }
        Tensor now = old;
        const std::uint64_t overflows =
            full_step(now.shard(), rule.scalars, {.ema_one_minus_decay = kEmaRate});
        ASSERT_NO_FATAL_FAILURE(expect_each_line({rule.scalars, old, now}));
        std::uint64_t expected = 0;
        for (std::size_t i = 0; i < now.size(); ++i) {
          const std::uint32_t bits = now.weight_bits(i);
          const std::uint32_t infinite = weight == Format::f16 ? 0x7C00U : 0x7F80U;
          expected +=
              weight != Format::f32 && std::isfinite(now.param[i]) && (bits & 0x7FFFU) == infinite;
        }
        ASSERT_EQ(overflows, expected);
      }
    }
  }
}

TEST_P(AccuracyOnEveryTarget, EachLineIsCloseToDoubleOnOrdinaryValues) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed());
  for (const Hyper& hyper : hypers()) {
    ASSERT_NO_FATAL_FAILURE(expect_accurate(hyper, false, random));
  }
}

TEST_P(AccuracyOnEveryTarget, EachLineIsCloseToDoubleOnValuesChosenToHurt) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 1);
  for (int round = 0; round < 3; ++round) {
    for (const Hyper& hyper : hypers()) {
      ASSERT_NO_FATAL_FAILURE(expect_accurate(hyper, true, random));
    }
  }
}

TEST(AccuracyTargets, AgreeBitForBit) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 2);
  for (const Hyper& hyper : hypers()) {
    for (const RuleCase& rule : every_rule(hyper)) {
      for (const Format grad : kFormats) {
        for (const Format weight : kFormats) {
          for (const bool at_random : {false, true}) {
            Tensor old(2051, grad, weight);
            fill_hurting(old, random, rule.scalars, hyper.coeff);
            Tensor first(0, grad, weight);
            for (const std::string& target : supported_targets()) {
              ASSERT_TRUE(force_target(target));
              Tensor now = old;
              for (std::uint64_t step = 0; step < 3; ++step) {
                (void)full_step(now.shard(), rule.scalars,
                                {.rounding = {at_random, step}, .ema_one_minus_decay = kEmaRate});
              }
              if (first.size() == 0) first = now;
              ASSERT_TRUE(same_result(now, first)) << rule.name << " on " << target;
            }
          }
        }
      }
    }
  }
  ASSERT_TRUE(force_target(""));
}

}  // namespace
}  // namespace outboard::simd::testing
