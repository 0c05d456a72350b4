// SPDX-License-Identifier: Apache-2.0
#include "update_bench/check.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "simd/digest.hpp"
#include "simd/reduce.hpp"
#include "simd/target.hpp"

namespace outboard::update_bench {
namespace {

constexpr std::uint64_t kReach = 16'384;  ///< elements on each side of the border

struct Range {
  std::uint64_t begin, end;
};

Range sample_of(const NodeLayout& node) {
  const std::uint64_t border =
      node.slices.size() > 1 ? node.slices.front().end : node.elems / 2 / 4096 * 4096;
  return {border - std::min(border, kReach), std::min(node.elems, border + kReach)};
}

/// A part of the data as it was filled, in memory of its own.
class Copy {
 public:
  Copy(Range range, const Workload& workload)
      : elems_(range.end - range.begin),
        floats_(3 * elems_),
        grad_(elems_ * simd::format_bytes(workload.grad)),
        weight_(workload.alias ? 0 : elems_ * simd::format_bytes(workload.weight)) {
    const auto stream = [&](std::size_t index) {
      return std::span<float>(floats_).subspan(index * elems_, elems_);
    };
    view_ = {stream(0),
             {stream(1), stream(2)},
             {grad_.data(), workload.grad},
             {workload.alias ? grad_.data() : weight_.data(), workload.weight}};
    fill(view_, range.begin, Values::normal);
  }
  [[nodiscard]] const View& view() const { return view_; }

 private:
  std::size_t elems_;
  std::vector<float> floats_;
  std::vector<std::byte> grad_, weight_;
  View view_;
};

/// Goes back to the target that was active.
class OtherTarget {
 public:
  OtherTarget() : before_(simd::active_target()) {
    for (const std::string& name : simd::supported_targets()) {
      if (name != before_) other_ = name;  // the last is the plainest
    }
    if (!other_.empty()) (void)simd::force_target(other_);
  }
  ~OtherTarget() { (void)simd::force_target(before_); }
  OtherTarget(const OtherTarget&) = delete;
  OtherTarget& operator=(const OtherTarget&) = delete;
  [[nodiscard]] std::string name() const { return other_.empty() ? before_ : other_; }

 private:
  std::string before_;
  std::string other_;
};

void step_again(const View& view, const std::vector<Piece>& pieces, const Stepper& stepper,
                Rule rule) {
  simd::RuleScalars scalars = scalars_of(rule, false);
  auto* lamb = std::get_if<simd::LambScalars>(&scalars);
  std::vector<simd::BlockNorms> norms(2 * kReach / simd::kReduceBlockElems + 1);
  for (std::uint32_t pass = 0; pass < kCheckPasses; ++pass) {
    // The trust ratio is of the whole tensor, so it is taken from the run.
    if (lamb != nullptr) lamb->lr_trust = stepper.trusts().at(pass);
    for (const Piece& piece : pieces) {
      const simd::UpdateShard shard = view.shard(piece, rule);
      if (lamb != nullptr) {
        simd::lamb_moments(shard, *lamb,
                           std::span(norms).first(simd::reduce_block_count(piece.elems)));
      }
      (void)simd::update(shard, scalars, stepper.options());
    }
  }
}

std::uint64_t digest_of(const View& view, const std::vector<Piece>& pieces, Rule rule) {
  std::uint64_t sum = 0;
  for (const Piece& piece : pieces) {
    const simd::UpdateShard shard = view.shard(piece, rule);
    const simd::DigestShard digest{.parameter = piece.tensor,
                                   .first_element = piece.first_element,
                                   .param = shard.param,
                                   .state = {shard.state[0], shard.state[1]}};
    sum += simd::digest_state(digest);
  }
  return sum;
}

bool same_weights(const View& left, const View& right, const std::vector<Piece>& pieces,
                  Rule rule) {
  return std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    const simd::Elements a = left.shard(piece, rule).weight;
    const simd::Elements b = right.shard(piece, rule).weight;
    return std::memcmp(a.data, b.data, piece.elems * simd::format_bytes(a.format)) == 0;
  });
}

}  // namespace

CheckResult check(const Stepper& stepper, const Workload& workload) {
  const Range range = sample_of(stepper.layout().front());
  std::vector<Piece> pieces = pieces_within(stepper.layout().front(), range.begin, range.end);
  for (Piece& piece : pieces) piece.offset -= range.begin;
  const View measured = stepper.view(0).part(range.begin, range.end);
  const Copy again(range, workload);
  CheckResult result;
  {
    const OtherTarget other;
    result.target = other.name();
    step_again(again.view(), pieces, stepper, workload.rule);
  }
  for (const Piece& piece : pieces) result.elems += piece.elems;
  result.digest = digest_of(measured, pieces, workload.rule);
  result.expected = digest_of(again.view(), pieces, workload.rule);
  result.equal = result.digest == result.expected &&
                 same_weights(measured, again.view(), pieces, workload.rule);
  return result;
}

}  // namespace outboard::update_bench
