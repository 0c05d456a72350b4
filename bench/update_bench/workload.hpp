// SPDX-License-Identifier: Apache-2.0
/// What one measurement of the update kernel is about: rule, formats, size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "simd/format.hpp"
#include "simd/rules.hpp"

namespace outboard::update_bench {

enum class Rule : std::uint8_t { adamw, adam, sgd, lion, adagrad, lamb };

[[nodiscard]] std::string_view name_of(Rule rule) noexcept;
[[nodiscard]] std::string_view name_of(simd::Format format) noexcept;
[[nodiscard]] std::optional<Rule> rule_named(std::string_view name) noexcept;
[[nodiscard]] std::optional<simd::Format> format_named(std::string_view name) noexcept;

inline constexpr std::uint64_t kMinParams = 100'000;
inline constexpr std::uint64_t kMaxParams = 1'000'000'000;
inline constexpr std::uint32_t kMinRepeats = 7;
inline constexpr std::uint32_t kMaxRepeats = 1'000;
inline constexpr std::uint32_t kMaxTensors = 100'000;
/// Three FP32 streams, read and written: what the roof moves per parameter.
inline constexpr double kRoofBytes = 24.0;
/// Two FP32 streams read, one written, as STREAM counts its triad.
inline constexpr double kTriadBytes = 12.0;

struct Workload {
  std::uint64_t params = 100'000'000;  ///< of one tensor; not looked at if `tensors` is not 0
  std::uint32_t tensors = 0;           ///< if not 0: so many tensors of 10 to 10,000 elements
  Rule rule = Rule::adamw;
  simd::Format grad = simd::Format::f16;
  simd::Format weight = simd::Format::f16;
  bool stochastic = false;  ///< rounding of the weight
  bool alias = true;        ///< the weight goes where the gradient was
  bool subnormal = false;   ///< also measure data full of subnormal values
  std::uint32_t repeats = 11;
  /// Parameters that one timed repeat goes through at least, in several steps if need be: some 15
  /// ms, so that handing out work to the threads does not count.
  std::uint64_t repeat_elems = 30'000'000;
};

/// @throws Error{invalid_argument} for a size out of bounds, Error{invalid_config} for settings
/// that contradict each other; the text says which.
void validate(const Workload& workload);
/// One size, or those of `tensors` tensors: fixed, evenly spread over 10 to 10,000.
[[nodiscard]] std::vector<std::uint64_t> tensor_sizes(const Workload& workload);
/// FP32 streams of state beside the master weight.
[[nodiscard]] std::size_t state_streams(Rule rule) noexcept;
/// Bytes that one step reads and writes for each parameter, counted.
[[nodiscard]] double bytes_per_param(const Workload& workload) noexcept;
/// A tenth step with usual hyper-parameters. Subnormal data also gets a coefficient that makes FP16
/// gradients tiny: a subnormal half is an ordinary float.
[[nodiscard]] simd::RuleScalars scalars_of(Rule rule, bool subnormal) noexcept;

}  // namespace outboard::update_bench
