// SPDX-License-Identifier: Apache-2.0
// The device's kernels give the bits of the host's, in every format.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>

#include "conformance/backends.hpp"
#include "simd/accumulate.hpp"
#include "simd/convert.hpp"
#include "simd/digest.hpp"
#include "simd/reduce.hpp"
#include "simd/rules/lamb_trust.hpp"
#include "simd/update.hpp"

namespace outboard::testing {
namespace {

using simd::Format;
using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

constexpr std::size_t kLengths[] = {0, 1, 63, 64, 65, 4095, 4096, 4097, 20011};
constexpr Format kFormats[] = {Format::f16, Format::bf16, Format::f32};

Floats random_floats(std::size_t count, std::uint32_t seed, float low, float high) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  Floats values(count);
  for (auto& value : values) value = uniform(random);
  return values;
}

Bytes in_format(const Floats& values, Format format) {
  Bytes out(values.size() * simd::format_bytes(format));
  simd::from_float(values, {out.data(), format});
  return out;
}

class BackendKernelTest : public BackendTest {
 protected:
  /// Device memory with these values.
  template <class T>
  T* put(const std::vector<T>& values) {
    T* memory = allocate<T>(values.size());
    owned_.push_back(memory);
    upload(memory, values, s_);
    return memory;
  }
  void release_all() {
    finish(s_);
    for (void* memory : owned_) device_.release(memory);
    owned_.clear();
  }
  ~BackendKernelTest() override { release_all(); }
  template <class T>
  std::vector<T> get(const T* memory, std::size_t count) {
    return download(memory, count, s_);
  }

  NativeStream s_ = stream();

 private:
  std::vector<void*> owned_;
};

TEST_P(BackendKernelTest, ReductionEqualsTheHosts) {
  auto* scalars = put(std::vector<device::GradientScalars>(1));
  for (const Format format : kFormats) {
    for (const std::size_t elems : kLengths) {
      SCOPED_TRACE("elements " + std::to_string(elems));
      const Bytes gradient = in_format(random_floats(elems, 11, -6.0f, 6.0f), format);
      device_.reduce_gradient(s_, {put(gradient), format}, elems, scalars);
      const auto got = get(scalars, 1)[0];
      const auto expected = simd::reduce_gradient({gradient.data(), format}, elems);
      EXPECT_EQ(std::bit_cast<std::uint64_t>(got.sum_of_squares),
                std::bit_cast<std::uint64_t>(expected.sum_of_squares));
      EXPECT_EQ(got.non_finite, 0u);
      EXPECT_EQ(got.first_non_finite, 0u);
    }
  }
}

TEST_P(BackendKernelTest, ReductionNamesTheFirstNonFiniteElement) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  auto* scalars = put(std::vector<device::GradientScalars>(1));
  for (const Format format : kFormats) {
    Floats values = random_floats(10000, 12, -6.0f, 6.0f);
    values[9999] = std::numeric_limits<float>::quiet_NaN();
    values[7000] = -kInfinite;
    const Bytes gradient = in_format(values, format);
    const std::byte* memory = put(gradient);
    device_.reduce_gradient(s_, {memory, format}, values.size(), scalars);
    auto got = get(scalars, 1)[0];
    EXPECT_EQ(got.non_finite, 2u);
    EXPECT_EQ(got.first_non_finite, 7000u << 1);
    EXPECT_EQ(got.sum_of_squares,
              simd::reduce_gradient({gradient.data(), format}, values.size()).sum_of_squares);
    device_.reduce_gradient(s_, {memory + 7001 * simd::format_bytes(format), format}, 2999,
                            scalars);
    got = get(scalars, 1)[0];
    EXPECT_EQ(got.non_finite, 1u);
    EXPECT_EQ(got.first_non_finite, (2998u << 1) | 1u);
  }
}

TEST_P(BackendKernelTest, PackingCopiesAndLeavesTheNormOfAReduction) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  auto* scalars = put(std::vector<device::GradientScalars>(1));
  auto* expected = put(std::vector<device::GradientScalars>(1));
  for (const Format format : kFormats) {
    for (const std::size_t elems : kLengths) {
      SCOPED_TRACE("elements " + std::to_string(elems));
      Floats values = random_floats(elems, 11, -6.0f, 6.0f);
      if (elems == 4097) values[4000] = kInfinite;
      const Bytes gradient = in_format(values, format);
      const std::size_t size = simd::format_bytes(format);
      constexpr std::size_t kBefore = 3;
      const Bytes old(gradient.size() + 2 * kBefore * size, std::byte{0x5A});
      std::byte* packed = put(old);
      const std::byte* source = put(gradient);
      device_.reduce_gradient(s_, {source, format}, elems, expected);
      device_.pack_gradient(s_, {source, format}, elems, packed + kBefore * size, scalars);
      EXPECT_EQ(std::memcmp(get(scalars, 1).data(), get(expected, 1).data(),
                            sizeof(device::GradientScalars)),
                0);
      Bytes wanted = old;
      std::ranges::copy(gradient, wanted.begin() + static_cast<std::ptrdiff_t>(kBefore * size));
      EXPECT_EQ(get(packed, old.size()), wanted) << "from element 3 on, and nothing around it";
    }
  }
}

TEST_P(BackendKernelTest, UnpackingSpreadsARangeOverItsWeights) {
  for (const Format format : kFormats) {
    const std::size_t size = simd::format_bytes(format);
    const std::vector<std::size_t> lengths = {1, 10, 0, 63, 4097, 2};
    std::vector<device::PackedWeight> table;
    std::vector<Bytes> wanted;
    std::vector<std::byte*> weights;
    std::size_t offset = 1;  // not everything of a range has a weight
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      wanted.push_back(in_format(
          random_floats(lengths[i], 20 + static_cast<std::uint32_t>(i), -6.0f, 6.0f), format));
      weights.push_back(put(Bytes(lengths[i] * size + 2 * size)));
      table.push_back({weights.back() + size, offset, lengths[i]});
      offset += lengths[i];
    }
    Bytes range(size);
    for (const Bytes& bytes : wanted) range.insert(range.end(), bytes.begin(), bytes.end());
    const std::byte* packed = put(range);
    // The first entry is left out.
    device_.unpack(s_, {.packed = {packed, format},
                        .elems = offset,
                        .weights = put(table) + 1,
                        .count = table.size() - 1});
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      Bytes around(lengths[i] * size + 2 * size);
      if (i > 0) std::ranges::copy(wanted[i], around.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(get(weights[i], around.size()), around) << "weight " << i;
    }
  }
}

TEST_P(BackendKernelTest, AccumulationEqualsTheHosts) {
  for (const Format format : kFormats) {
    for (const std::size_t elems : kLengths) {
      const Bytes gradient = in_format(random_floats(elems, 13, -6.0f, 6.0f), format);
      Floats sum = random_floats(elems, 14, -6.0f, 6.0f);
      auto* device_sum = put(sum);
      const std::byte* device_gradient = put(gradient);
      for (const bool first : {false, true, false}) {
        device_.accumulate(s_, {{device_gradient, format}, device_sum, elems, first});
        simd::accumulate({{gradient.data(), format}, sum, first});
        EXPECT_EQ(get(device_sum, elems), sum);
      }
    }
  }
}

/// One segment's memory, on the host.
struct State {
  Bytes gradient, weight;
  Floats param, first, second, ema;
};

State some_state(std::size_t elems, Format format) {
  return {in_format(random_floats(elems, 1, -6.0f, 6.0f), format),
          Bytes(elems * simd::format_bytes(format)),
          random_floats(elems, 2, -3.0f, 3.0f),
          random_floats(elems, 3, -0.1f, 0.1f),
          random_floats(elems, 4, 0.0f, 0.01f),
          random_floats(elems, 5, -3.0f, 3.0f)};
}

template <class Scalars>
Scalars moments() {
  Scalars out;
  out.beta1 = 0.9f;
  out.one_minus_beta1 = 0.1f;
  out.beta2 = 0.999f;
  out.one_minus_beta2 = 0.001f;
  out.eps = 1e-8f;
  out.inv_sqrt_bias2 = 20.0f;
  out.coeff = 0.5f;
  out.exp_avg_sq_floor = std::numeric_limits<float>::min() / 0.999f;
  out.grad_sq_floor = 3.4e-18f;
  return out;
}

simd::LambScalars lamb_scalars() {
  auto out = moments<simd::LambScalars>();
  out.inv_bias1 = 8.0f;
  out.weight_decay = 0.01f;
  return out;
}

/// Rules of one phase, with the number of streams each has.
std::vector<std::pair<simd::RuleScalars, std::size_t>> one_phase_rules() {
  auto adamw = moments<simd::AdamWScalars>();
  adamw.step_size = 1e-2f;
  adamw.lr_wd = 1e-3f;
  auto adam = moments<simd::AdamScalars>();
  adam.step_size = 1e-2f;
  adam.weight_decay = 0.1f;
  const simd::SgdScalars plain{.lr = 0.1f, .coeff = 0.5f};
  const simd::SgdScalars momentum{
      .lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f, .coeff = 0.5f, .nesterov = true};
  const simd::LionScalars lion{.beta1 = 0.9f,
                               .one_minus_beta1 = 0.1f,
                               .beta2 = 0.99f,
                               .one_minus_beta2 = 0.01f,
                               .lr = 1e-3f,
                               .lr_wd = 1e-4f,
                               .coeff = 0.5f};
  const simd::AdagradScalars adagrad{
      .step_size = 0.1f, .eps = 1e-10f, .weight_decay = 0.1f, .coeff = 0.5f};
  return {{adamw, 2}, {adam, 2}, {plain, 0}, {momentum, 1}, {lion, 1}, {adagrad, 1}};
}

/// Runs one update on the device and on the host, with average and stochastic rounding.
class BackendUpdateTest : public BackendKernelTest {
 protected:
  void compare(const simd::RuleScalars& scalars, std::size_t streams, std::size_t elems,
               Format format, const simd::UpdateOptions& options) {
    State host = some_state(elems, format);
    if (elems > 70) host.param[70] = 1e6f;  // finite, but infinite as a half
    device::DeviceUpdate update;
    auto* weight = put(host.weight);
    auto* param = put(host.param);
    auto* first = put(host.first);
    auto* second = put(host.second);
    auto* ema = put(host.ema);
    auto* overflows = put(std::vector<std::uint64_t>{40});
    update.grad = {put(host.gradient), format};
    update.weight = {weight, format};
    update.param = param;
    if (streams > 0) update.state[0] = first;
    if (streams > 1) update.state[1] = second;
    if (options.ema_one_minus_decay > 0.0f) update.ema = ema;
    update.elems = elems;
    update.first_element = 8192;
    update.scalars = scalars;
    update.options = options;
    update.overflow_count = overflows;
    device_.update(s_, update);

    simd::UpdateShard shard;
    shard.grad = {host.gradient.data(), format};
    shard.weight = {host.weight.data(), format};
    shard.param = host.param;
    if (streams > 0) shard.state[0] = host.first;
    if (streams > 1) shard.state[1] = host.second;
    if (options.ema_one_minus_decay > 0.0f) shard.ema = host.ema;
    shard.first_element = 8192;
    const std::uint64_t expected = simd::update(shard, scalars, options);
    EXPECT_EQ(expected, elems > 70 && format == Format::f16 ? 1u : 0u);
    EXPECT_EQ(get(weight, host.weight.size()), host.weight);
    EXPECT_EQ(get(param, elems), host.param);
    EXPECT_EQ(get(first, elems), host.first);
    EXPECT_EQ(get(second, elems), host.second);
    EXPECT_EQ(get(ema, elems), host.ema);
    EXPECT_EQ(get(overflows, 1)[0], 40 + expected);
    release_all();
  }
};

TEST_P(BackendUpdateTest, EqualsTheHostsForEveryRule) {
  const simd::UpdateOptions plain;
  const simd::UpdateOptions full{.rounding = {true, 77}, .ema_one_minus_decay = 0.25f};
  for (const auto& [scalars, streams] : one_phase_rules()) {
    for (const Format format : kFormats) {
      for (const std::size_t elems : kLengths) {
        SCOPED_TRACE("rule " + std::to_string(scalars.index()) + ", format " +
                     std::to_string(static_cast<int>(format)) + ", elements " +
                     std::to_string(elems));
        compare(scalars, streams, elems, format, plain);
        compare(scalars, streams, elems, format, full);
      }
    }
  }
}

TEST_P(BackendUpdateTest, EqualsTheHostsInTwoPhases) {
  for (const Format format : kFormats) {
    constexpr std::size_t kElems = 10000;
    State host = some_state(kElems, format);
    std::vector<simd::BlockNorms> norms(3);
    const std::byte* gradient = put(host.gradient);
    auto* weight = put(host.weight);
    auto* param = put(host.param);
    auto* first = put(host.first);
    auto* second = put(host.second);
    auto* device_norms = put(norms);
    auto* lr_trust = put(Floats(1));
    device_.lamb_moments(
        s_, {{gradient, format}, param, {first, second}, kElems, lamb_scalars(), device_norms});
    device_.lamb_trust(s_, {device_norms, norms.size(), 0.01, lr_trust});
    device::DeviceUpdate update;
    update.weight = {weight, format};
    update.param = param;
    update.state = {first, second};
    update.elems = kElems;
    update.scalars = lamb_scalars();
    update.lr_trust = lr_trust;
    device_.update(s_, update);

    simd::UpdateShard shard;
    shard.grad = {host.gradient.data(), format};
    shard.weight = {host.weight.data(), format};
    shard.param = host.param;
    shard.state = {host.first, host.second};
    simd::LambScalars scalars = lamb_scalars();
    simd::lamb_moments(shard, scalars, norms);
    scalars.lr_trust = simd::lamb_lr_trust(0.01, norms);
    (void)simd::update(shard, scalars);
    EXPECT_NE(scalars.lr_trust, 0.01f);
    EXPECT_EQ(get(lr_trust, 1)[0], scalars.lr_trust);
    EXPECT_EQ(get(weight, host.weight.size()), host.weight);
    EXPECT_EQ(get(param, kElems), host.param);
    EXPECT_EQ(get(first, kElems), host.first);
    EXPECT_EQ(get(second, kElems), host.second);
  }
}

TEST_P(BackendKernelTest, DigestAddsTheHosts) {
  constexpr std::size_t kElems = 5000;
  const State host = some_state(kElems, Format::f16);
  const float* param = put(host.param);
  const float* first = put(host.first);
  const float* second = put(host.second);
  const float* ema = put(host.ema);
  auto* sum = put(std::vector<std::uint64_t>(1));
  // One rule has no second stream, one group no average.
  for (const bool all : {true, false}) {
    device_.fill_zero(s_, sum, 8);
    // In two parts, the second one first.
    for (const auto& [from, elems] : {std::pair<std::size_t, std::size_t>{4096, 904}, {0, 4096}}) {
      device_.digest(s_, {.param = param + from,
                          .state = {first + from, all ? second + from : nullptr},
                          .ema = all ? ema + from : nullptr,
                          .elems = elems,
                          .parameter = 5,
                          .first_element = from,
                          .sum = sum});
    }
    simd::DigestShard shard;
    shard.parameter = 5;
    shard.param = host.param;
    shard.state[0] = host.first;
    if (all) shard.state[1] = host.second;
    if (all) shard.ema = host.ema;
    EXPECT_EQ(get(sum, 1)[0], simd::digest_state(shard));
  }
}

TEST_P(BackendKernelTest, FillsAndConversionsTouchTheirRangeOnly) {
  constexpr std::size_t kElems = 1000;
  for (const Format format : kFormats) {
    const std::size_t size = simd::format_bytes(format);
    const Bytes elements = in_format(random_floats(kElems, 8, -6.0f, 6.0f), format);
    std::byte* memory = put(elements);
    auto* full = put(Floats(kElems));
    device_.to_float(s_, full, {memory, format}, kElems);
    Floats expected(kElems);
    simd::to_float({elements.data(), format}, expected);
    EXPECT_EQ(get(full, kElems), expected);
    constexpr std::uint32_t kBits = 0x12347E01;
    device_.fill(s_, {memory + 10 * size, format}, 20, kBits);
    device_.fill_zero(s_, memory + 500 * size, 7);
    Bytes filled = elements;
    for (std::size_t i = 10; i < 30; ++i) std::memcpy(filled.data() + i * size, &kBits, size);
    std::memset(filled.data() + 500 * size, 0, 7);
    EXPECT_EQ(get(memory, elements.size()), filled);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, BackendKernelTest, ::testing::ValuesIn(backend_flavours()),
                         [](const auto& instance) { return instance.param.name; });
INSTANTIATE_TEST_SUITE_P(Every, BackendUpdateTest, ::testing::ValuesIn(backend_flavours()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace outboard::testing
