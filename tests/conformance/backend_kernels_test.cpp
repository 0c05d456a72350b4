// SPDX-License-Identifier: Apache-2.0
// The device's kernels give the bits of the host's.
#include <bit>
#include <cmath>
#include <limits>

#include "conformance/backends.hpp"
#include "outboard/half.hpp"
#include "simd/adamw.hpp"
#include "simd/convert.hpp"
#include "simd/digest.hpp"
#include "simd/reduce.hpp"

namespace outboard::testing {
namespace {

using BackendKernelTest = BackendTest;
using Halves = std::vector<std::uint16_t>;
using Floats = std::vector<float>;

constexpr std::size_t kLengths[] = {0, 1, 63, 64, 65, 4095, 4096, 4097, 20011};

Halves random_halves(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  Halves values(count);
  for (auto& value : values) value = half_from_float(normal(random));
  return values;
}

Floats random_floats(std::size_t count, std::uint32_t seed, float low, float high) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  Floats values(count);
  for (auto& value : values) value = uniform(random);
  return values;
}

simd::AdamWScalars some_scalars() {
  return {.beta1 = 0.9f,
          .one_minus_beta1 = 0.1f,
          .beta2 = 0.999f,
          .one_minus_beta2 = 0.001f,
          .eps = 1e-8f,
          .step_size = 1e-2f,
          .lr_wd = 1e-3f,
          .inv_sqrt_bias2 = 20.0f,
          .coeff = 0.5f,
          .exp_avg_sq_floor = std::numeric_limits<float>::min() / 0.999f,
          .grad_sq_floor = std::sqrt(std::numeric_limits<float>::min() / 0.001f)};
}

TEST_P(BackendKernelTest, ReductionEqualsTheHosts) {
  const NativeStream s = stream();
  auto* scalars = allocate<device::GradientScalars>(1);
  for (const std::size_t elems : kLengths) {
    SCOPED_TRACE("elements " + std::to_string(elems));
    const Halves gradient = random_halves(elems, 11);
    auto* device_gradient = allocate<std::uint16_t>(elems);
    upload(device_gradient, gradient, s);
    device_.reduce_gradient(s, device_gradient, elems, scalars);
    const auto got = download(scalars, 1, s)[0];
    const auto expected = simd::reduce_gradient(gradient);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(got.sum_of_squares),
              std::bit_cast<std::uint64_t>(expected.sum_of_squares));
    EXPECT_EQ(got.non_finite, 0u);
    EXPECT_EQ(got.first_non_finite, 0u);
    device_.release(device_gradient);
  }
}

TEST_P(BackendKernelTest, ReductionNamesTheFirstNonFiniteElement) {
  const NativeStream s = stream();
  auto* scalars = allocate<device::GradientScalars>(1);
  Halves gradient = random_halves(10000, 12);
  auto* device_gradient = allocate<std::uint16_t>(gradient.size());
  gradient[9999] = 0x7E00;  // NaN
  gradient[7000] = 0xFC00;  // -Inf
  upload(device_gradient, gradient, s);
  device_.reduce_gradient(s, device_gradient, gradient.size(), scalars);
  auto got = download(scalars, 1, s)[0];
  EXPECT_EQ(got.non_finite, 2u);
  EXPECT_EQ(got.first_non_finite, 7000u << 1);
  EXPECT_EQ(got.sum_of_squares, simd::reduce_gradient(gradient).sum_of_squares);
  device_.reduce_gradient(s, device_gradient + 7001, 2999, scalars);
  got = download(scalars, 1, s)[0];
  EXPECT_EQ(got.non_finite, 1u);
  EXPECT_EQ(got.first_non_finite, (2998u << 1) | 1u);
}

struct State {
  Halves gradient;
  Floats param, exp_avg, exp_avg_sq;
};

State some_state(std::size_t elems) {
  return {random_halves(elems, 1), random_floats(elems, 2, -3.0f, 3.0f),
          random_floats(elems, 3, -0.1f, 0.1f), random_floats(elems, 4, 0.0f, 0.01f)};
}

TEST_P(BackendKernelTest, AdamWEqualsTheHosts) {
  const NativeStream s = stream();
  for (const std::size_t elems : kLengths) {
    SCOPED_TRACE("elements " + std::to_string(elems));
    State host = some_state(elems);
    if (elems > 70) host.param[70] = 1e6f;  // finite, but infinite as a half
    auto* gradient = allocate<std::uint16_t>(elems);
    auto* weight = allocate<std::uint16_t>(elems);
    auto* param = allocate<float>(elems);
    auto* exp_avg = allocate<float>(elems);
    auto* exp_avg_sq = allocate<float>(elems);
    auto* overflows = allocate<std::uint64_t>(1);
    upload(gradient, host.gradient, s);
    upload(param, host.param, s);
    upload(exp_avg, host.exp_avg, s);
    upload(exp_avg_sq, host.exp_avg_sq, s);
    upload(overflows, std::vector<std::uint64_t>{40}, s);
    device_.adamw(s, {.grad_fp16 = gradient,
                      .param = param,
                      .exp_avg = exp_avg,
                      .exp_avg_sq = exp_avg_sq,
                      .weight_fp16 = weight,
                      .elems = elems,
                      .scalars = some_scalars(),
                      .overflow_count = overflows});
    Halves expected_weight(elems);
    const std::uint64_t expected_overflows = simd::adamw_step({.grad_fp16 = host.gradient,
                                                               .param = host.param,
                                                               .exp_avg = host.exp_avg,
                                                               .exp_avg_sq = host.exp_avg_sq,
                                                               .weight_fp16 = expected_weight},
                                                              some_scalars());
    EXPECT_EQ(expected_overflows, elems > 70 ? 1u : 0u);
    EXPECT_EQ(download(weight, elems, s), expected_weight);
    EXPECT_EQ(download(param, elems, s), host.param);
    EXPECT_EQ(download(exp_avg, elems, s), host.exp_avg);
    EXPECT_EQ(download(exp_avg_sq, elems, s), host.exp_avg_sq);
    EXPECT_EQ(download(overflows, 1, s)[0], 40 + expected_overflows);
    for (void* address : {static_cast<void*>(gradient), static_cast<void*>(weight),
                          static_cast<void*>(param), static_cast<void*>(exp_avg),
                          static_cast<void*>(exp_avg_sq), static_cast<void*>(overflows)}) {
      device_.release(address);
    }
  }
}

TEST_P(BackendKernelTest, DigestAddsTheHosts) {
  const NativeStream s = stream();
  constexpr std::size_t kElems = 5000;
  const State host = some_state(kElems);
  auto* param = allocate<float>(kElems);
  auto* exp_avg = allocate<float>(kElems);
  auto* exp_avg_sq = allocate<float>(kElems);
  auto* sum = allocate<std::uint64_t>(1);
  upload(param, host.param, s);
  upload(exp_avg, host.exp_avg, s);
  upload(exp_avg_sq, host.exp_avg_sq, s);
  device_.fill_zero(s, sum, 8);
  // In two parts, the second one first.
  for (const auto& [first, elems] : {std::pair<std::size_t, std::size_t>{4096, 904}, {0, 4096}}) {
    device_.digest(s, {.param = param + first,
                       .exp_avg = exp_avg + first,
                       .exp_avg_sq = exp_avg_sq + first,
                       .elems = elems,
                       .parameter = 5,
                       .first_element = first,
                       .sum = sum});
  }
  const std::uint64_t expected = simd::digest_state({.parameter = 5,
                                                     .first_element = 0,
                                                     .param = host.param,
                                                     .state = {host.exp_avg, host.exp_avg_sq}});
  EXPECT_EQ(download(sum, 1, s)[0], expected);
}

TEST_P(BackendKernelTest, FillsAndConversionsTouchTheirRangeOnly) {
  const NativeStream s = stream();
  constexpr std::size_t kElems = 1000;
  const Halves halves = random_halves(kElems, 8);
  auto* half = allocate<std::uint16_t>(kElems);
  auto* full = allocate<float>(kElems);
  upload(half, halves, s);
  device_.half_to_float(s, full, half, kElems);
  Floats expected(kElems);
  simd::half_to_float(halves, expected);
  EXPECT_EQ(download(full, kElems, s), expected);
  device_.fill_half(s, half + 10, 20, 0x7E00);
  device_.fill_zero(s, half + 500, 7);  // bytes
  Halves filled = halves;
  std::fill(filled.begin() + 10, filled.begin() + 30, std::uint16_t{0x7E00});
  std::fill(filled.begin() + 500, filled.begin() + 503, std::uint16_t{0});
  filled[503] = static_cast<std::uint16_t>(filled[503] & 0xFF00u);
  EXPECT_EQ(download(half, kElems, s), filled);
}

INSTANTIATE_TEST_SUITE_P(Every, BackendKernelTest, ::testing::ValuesIn(backend_flavours()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace outboard::testing
