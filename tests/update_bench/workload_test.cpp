// SPDX-License-Identifier: Apache-2.0
#include "update_bench/workload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "support/expect_error.hpp"

namespace outboard::update_bench {
namespace {

using outboard::testing::expect_error;
using simd::Format;

TEST(Workload, CountsTheBytesOfEveryRule) {
  const auto bytes = [](Rule rule, Format grad, Format weight) {
    Workload workload;
    workload.rule = rule;
    workload.grad = grad;
    workload.weight = weight;
    return bytes_per_param(workload);
  };
  // p, m, v read and written: 24; gradient and weight beside.
  EXPECT_EQ(bytes(Rule::adamw, Format::f16, Format::f16), 28);
  EXPECT_EQ(bytes(Rule::adam, Format::bf16, Format::bf16), 28);
  EXPECT_EQ(bytes(Rule::adamw, Format::f32, Format::bf16), 30);
  EXPECT_EQ(bytes(Rule::sgd, Format::f16, Format::f16), 20);
  EXPECT_EQ(bytes(Rule::lion, Format::f32, Format::f32), 24);
  EXPECT_EQ(bytes(Rule::adagrad, Format::f16, Format::f16), 20);
  // First phase: g 2, p 4, m 8, v 8; second: p 8, m 4, v 4, w 2.
  EXPECT_EQ(bytes(Rule::lamb, Format::f16, Format::f16), 22 + 18);
}

TEST(Workload, NamesAreReadAsTheyAreWritten) {
  for (const Rule rule :
       {Rule::adamw, Rule::adam, Rule::sgd, Rule::lion, Rule::adagrad, Rule::lamb}) {
    EXPECT_EQ(rule_named(name_of(rule)), rule);
    EXPECT_EQ(scalars_of(rule, false).index(), static_cast<std::size_t>(rule));
  }
  for (const Format format : {Format::f16, Format::bf16, Format::f32}) {
    EXPECT_EQ(format_named(name_of(format)), format);
  }
  EXPECT_EQ(rule_named("adamax"), std::nullopt);
}

TEST(Workload, ScalarsAreOfATenthStep) {
  const auto adamw = std::get<simd::AdamWScalars>(scalars_of(Rule::adamw, false));
  EXPECT_FLOAT_EQ(adamw.step_size, static_cast<float>(1e-3 / (1.0 - std::pow(0.9, 10))));
  EXPECT_FLOAT_EQ(adamw.lr_wd, 1e-5F);
  EXPECT_EQ(adamw.coeff, 1.0F);
  const auto sgd = std::get<simd::SgdScalars>(scalars_of(Rule::sgd, true));
  EXPECT_FALSE(sgd.first);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_EQ(sgd.coeff, 0x1p-90F);
  EXPECT_EQ(std::get<simd::LambScalars>(scalars_of(Rule::lamb, false)).lr_trust, 1e-3F);
}

TEST(Workload, TenThousandTensorsAreOfAllSizes) {
  Workload workload;
  workload.tensors = 10'000;
  const auto sizes = tensor_sizes(workload);
  ASSERT_EQ(sizes.size(), 10'000U);
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  EXPECT_EQ(*least, 10U);
  EXPECT_EQ(*most, 10'000U);
  const auto small =
      std::count_if(sizes.begin(), sizes.end(), [](std::uint64_t size) { return size < 1'000; });
  EXPECT_NEAR(static_cast<double>(small), 990, 20);
}

Workload with(void (*change)(Workload&)) {
  Workload workload;
  change(workload);
  return workload;
}

TEST(Workload, RefusesByName) {
  expect_error(ErrorCode::invalid_argument, {"99999", "100000", "1000000000"},
               [] { validate(with([](Workload& w) { w.params = 99'999; })); });
  expect_error(ErrorCode::invalid_argument, {"repeats", "6", "7"},
               [] { validate(with([](Workload& w) { w.repeats = 6; })); });
  expect_error(ErrorCode::invalid_argument, {"tensors", "1;"},
               [] { validate(with([](Workload& w) { w.tensors = 1; })); });
  expect_error(ErrorCode::invalid_config, {"f32 weights", "f16 gradients"},
               [] { validate(with([](Workload& w) { w.weight = Format::f32; })); });
  expect_error(ErrorCode::invalid_config, {"stochastic", "f32"}, [] {
    validate(with([](Workload& w) {
      w.grad = w.weight = Format::f32;
      w.stochastic = true;
    }));
  });
  expect_error(ErrorCode::invalid_config, {"lamb", "norm"}, [] {
    validate(with([](Workload& w) {
      w.rule = Rule::lamb;
      w.tensors = 10;
    }));
  });
  validate(Workload{});
}

}  // namespace
}  // namespace outboard::update_bench
