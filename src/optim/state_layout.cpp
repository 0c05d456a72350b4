// SPDX-License-Identifier: Apache-2.0
#include "optim/state_layout.hpp"

#include <algorithm>
#include <array>

namespace outboard::optim {
namespace {

constexpr std::array<std::string_view, 2> kMoments = {"exp_avg", "exp_avg_sq"};
constexpr std::array<std::string_view, 1> kFirstMoment = {"exp_avg"};
constexpr std::array<std::string_view, 1> kMomentum = {"momentum_buffer"};
constexpr std::array<std::string_view, 1> kSum = {"sum"};

using Names = std::span<const std::string_view>;

Names names(const AdamW& /*rule*/) {
  return kMoments;
}
Names names(const Adam& /*rule*/) {
  return kMoments;
}
Names names(const Sgd& rule) {
  return rule.momentum > 0.0 ? Names(kMomentum) : Names();
}
Names names(const Lion& /*rule*/) {
  return kFirstMoment;
}
Names names(const Adagrad& /*rule*/) {
  return kSum;
}
Names names(const Lamb& /*rule*/) {
  return kMoments;
}

/// "exp_avg", or "exp_avg, sum" where groups of different rules share the stream.
std::string shared_purpose(std::span<const Group> groups, const std::vector<bool>& used,
                           std::size_t stream) {
  std::vector<std::string_view> seen;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Names own = rule_streams(groups[i].rule);
    if (!used[i] || stream >= own.size()) continue;
    if (std::ranges::find(seen, own[stream]) == seen.end()) seen.push_back(own[stream]);
  }
  std::string text;
  for (const std::string_view name : seen) {
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

}  // namespace

std::span<const std::string_view> rule_streams(const Rule& rule) noexcept {
  return std::visit([](const auto& kind) { return names(kind); }, rule);
}

std::vector<std::string_view> stream_names(const Group& group) {
  std::vector<std::string_view> out = {"master"};
  const Names own = rule_streams(group.rule);
  out.insert(out.end(), own.begin(), own.end());
  if (group.options.ema_decay) out.emplace_back("ema");
  return out;
}

StateLayout make_state_layout(std::span<const Group> groups, const std::vector<bool>& used) {
  StateLayout layout;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!used[i]) continue;
    layout.rule_streams = std::max(layout.rule_streams, rule_streams(groups[i].rule).size());
    layout.ema = layout.ema || groups[i].options.ema_decay.has_value();
  }
  layout.purposes = {"master weight"};
  for (std::size_t i = 0; i < layout.rule_streams; ++i) {
    layout.purposes.push_back(shared_purpose(groups, used, i));
  }
  if (layout.ema) layout.purposes.emplace_back("ema");
  return layout;
}

}  // namespace outboard::optim
