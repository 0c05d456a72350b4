// SPDX-License-Identifier: Apache-2.0
#include "optim/state_layout.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace outboard::optim {
namespace {

using Names = std::vector<std::string_view>;
using Purposes = std::vector<std::string>;

TEST(StateLayout, NamesAGroupsStreams) {
  EXPECT_EQ(stream_names({AdamW{}, {}}), (Names{"master", "exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(stream_names({Adam{}, {}}), (Names{"master", "exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(stream_names({Lamb{}, {}}), (Names{"master", "exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(stream_names({Sgd{}, {}}), (Names{"master"}));
  EXPECT_EQ(stream_names({Sgd{.momentum = 0.5}, {}}), (Names{"master", "momentum_buffer"}));
  EXPECT_EQ(stream_names({Lion{}, {}}), (Names{"master", "exp_avg"}));
  EXPECT_EQ(stream_names({Adagrad{}, {.ema_decay = 0.5}}), (Names{"master", "sum", "ema"}));
}

TEST(StateLayout, OfAnEngineIsThatOfItsWidestRuleInUse) {
  const std::vector<Group> groups = {{Sgd{}, {}}, {Lion{}, {}}, {AdamW{}, {.ema_decay = 0.5}}};
  const StateLayout narrow = make_state_layout(groups, {true, false, false});
  EXPECT_EQ(narrow.purposes, (Purposes{"master weight"}));
  const StateLayout two = make_state_layout(groups, {true, true, false});
  EXPECT_EQ(two.purposes, (Purposes{"master weight", "exp_avg"}));
  EXPECT_FALSE(two.ema);
  const StateLayout all = make_state_layout(groups, {true, true, true});
  EXPECT_EQ(all.purposes, (Purposes{"master weight", "exp_avg", "exp_avg_sq", "ema"}));
  EXPECT_EQ(all.ema_stream(), 3U);
  EXPECT_EQ(all.streams(), kMaxStreams);
  EXPECT_EQ(make_state_layout({}, {}).streams(), 1U);
}

TEST(StateLayout, SaysWhatASharedStreamHolds) {
  const std::vector<Group> groups = {{Adagrad{}, {}}, {Lion{}, {}}, {Lion{}, {}}};
  EXPECT_EQ(make_state_layout(groups, {true, true, true}).purposes,
            (Purposes{"master weight", "sum, exp_avg"}));
}

}  // namespace
}  // namespace outboard::optim
