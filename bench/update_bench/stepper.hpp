// SPDX-License-Identifier: Apache-2.0
/// Runs whole steps over the data with all threads.
#pragma once

#include <cstdint>
#include <vector>

#include "simd/rules/lamb.hpp"
#include "simd/update.hpp"
#include "update_bench/crew.hpp"
#include "update_bench/data.hpp"
#include "update_bench/layout.hpp"
#include "update_bench/workload.hpp"

namespace outboard::update_bench {

/// The key of stochastic rounding; one for all steps, since only its cost is measured.
inline constexpr std::uint64_t kRoundingKey = 0x6F7574626F617264;

/// Borrows the crew and the data, which must outlive it.
class Stepper {
 public:
  Stepper(Crew& crew, Data& data, std::vector<NodeLayout> layout, const Workload& workload);

  /// `passes` steps one after the other. Threads meet only where the rule makes them: between
  /// LAMB's phases. @return seconds.
  double run(Values values, std::uint32_t passes);
  /// As many passes of the roof's loop over the same memory, the same slices. Changes no bit.
  double run_roof(std::uint32_t passes);
  /// The same of the triad, which destroys the state.
  double run_triad(std::uint32_t passes);
  /// Writes the data anew, each thread its own slice.
  void fill(Values values);

  [[nodiscard]] const std::vector<NodeLayout>& layout() const noexcept { return layout_; }
  [[nodiscard]] const View& view(std::uint32_t node) const { return views_[node]; }
  /// LAMB: lr times trust ratio of every step since the last fill(); else empty.
  [[nodiscard]] const std::vector<float>& trusts() const noexcept { return trusts_; }
  [[nodiscard]] simd::UpdateOptions options() const noexcept;

 private:
  double run_lamb(simd::LambScalars scalars, std::uint32_t passes);
  [[nodiscard]] float lr_trust(float lr) const;

  Crew& crew_;
  std::vector<NodeLayout> layout_;
  Workload workload_;
  std::vector<View> views_;
  std::vector<std::vector<std::vector<simd::BlockNorms>>> norms_;  // [node][slice][block]
  std::vector<float> trusts_;
};

}  // namespace outboard::update_bench
