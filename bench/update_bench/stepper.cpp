// SPDX-License-Identifier: Apache-2.0
#include "update_bench/stepper.hpp"

#include <cmath>
#include <utility>
#include <variant>

#include "simd/reduce.hpp"
#include "update_bench/roof.hpp"

namespace outboard::update_bench {
namespace {

std::array<std::span<float>, 3> floats(const View& view, const Slice& slice) {
  const View own = view.part(slice.begin, slice.end);
  return {own.param, own.state[0], own.state[1]};
}

}  // namespace

Stepper::Stepper(Crew& crew, Data& data, std::vector<NodeLayout> layout, const Workload& workload)
    : crew_(crew), layout_(std::move(layout)), workload_(workload) {
  for (std::uint32_t node = 0; node < layout_.size(); ++node) {
    views_.push_back(data.node(node));
    auto& slices = norms_.emplace_back();
    for (const Slice& slice : layout_[node].slices) {
      const std::uint64_t elems = workload.rule == Rule::lamb ? slice.end - slice.begin : 0;
      slices.emplace_back(simd::reduce_block_count(elems));
    }
  }
}

simd::UpdateOptions Stepper::options() const noexcept {
  simd::UpdateOptions options;
  options.rounding = {.on = workload_.stochastic, .key = kRoundingKey};
  return options;
}

double Stepper::run(Values values, std::uint32_t passes) {
  const simd::RuleScalars scalars = scalars_of(workload_.rule, values == Values::subnormal);
  if (const auto* lamb = std::get_if<simd::LambScalars>(&scalars)) return run_lamb(*lamb, passes);
  return crew_.run([&](std::uint32_t node, std::uint32_t part) {
    for (std::uint32_t pass = 0; pass < passes; ++pass) {
      for (const Piece& piece : layout_[node].slices[part].pieces) {
        (void)simd::update(views_[node].shard(piece, workload_.rule), scalars, options());
      }
    }
  });
}

double Stepper::run_lamb(simd::LambScalars scalars, std::uint32_t passes) {
  const float lr = scalars.lr_trust;
  double seconds = 0.0;
  for (std::uint32_t pass = 0; pass < passes; ++pass) {
    seconds += crew_.run([&](std::uint32_t node, std::uint32_t part) {
      for (const Piece& piece : layout_[node].slices[part].pieces) {
        simd::lamb_moments(views_[node].shard(piece, Rule::lamb), scalars, norms_[node][part]);
      }
    });
    scalars.lr_trust = lr_trust(lr);
    trusts_.push_back(scalars.lr_trust);
    seconds += crew_.run([&](std::uint32_t node, std::uint32_t part) {
      for (const Piece& piece : layout_[node].slices[part].pieces) {
        (void)simd::update(views_[node].shard(piece, Rule::lamb), scalars, options());
      }
    });
  }
  return seconds;
}

float Stepper::lr_trust(float lr) const {
  simd::BlockNorms sum;
  for (const auto& slices : norms_) {
    for (const auto& blocks : slices) {
      for (const simd::BlockNorms& block : blocks) {
        sum.param += block.param;
        sum.update += block.update;
      }
    }
  }
  if (sum.param == 0.0 || sum.update == 0.0) return lr;
  return static_cast<float>(static_cast<double>(lr) * std::sqrt(sum.param / sum.update));
}

double Stepper::run_roof(std::uint32_t passes) {
  return crew_.run([&](std::uint32_t node, std::uint32_t part) {
    const auto own = floats(views_[node], layout_[node].slices[part]);
    for (std::uint32_t pass = 0; pass < passes; ++pass) touch_three(own);
  });
}

double Stepper::run_triad(std::uint32_t passes) {
  return crew_.run([&](std::uint32_t node, std::uint32_t part) {
    const auto own = floats(views_[node], layout_[node].slices[part]);
    for (std::uint32_t pass = 0; pass < passes; ++pass) triad(own);
  });
}

void Stepper::fill(Values values) {
  trusts_.clear();
  crew_.run([&](std::uint32_t node, std::uint32_t part) {
    const Slice& slice = layout_[node].slices[part];
    update_bench::fill(views_[node].part(slice.begin, slice.end), slice.begin, values);
  });
}

}  // namespace outboard::update_bench
