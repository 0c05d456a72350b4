// SPDX-License-Identifier: Apache-2.0
/// Second names of one weight, and addresses that only look like it.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "support/expect_error.hpp"
#include "support/manual_trainer.hpp"

namespace outboard::testing {
namespace {

class TiedWeights : public ::testing::Test {
 protected:
  Engine& engine() { return *trainer_.engine; }
  [[nodiscard]] ParameterSpec second_name(const std::string& name) const {
    ParameterSpec spec;
    spec.name = name;
    spec.elems = 4;
    spec.data = trainer_.weight(embedding_);
    spec.group = group_;
    return spec;
  }
  /// `elems` from element `first` of a weight.
  static ParameterSpec part(const ParameterSpec& of, std::size_t first, std::size_t elems) {
    ParameterSpec spec = of;
    spec.name = of.name + "[" + std::to_string(first) + "]";
    spec.data = static_cast<std::byte*>(of.data) + first * 2;
    spec.elems = elems;
    return spec;
  }

  ManualTrainer trainer_{Config{}};
  GroupId group_ = engine().add_group({});
  GroupId other_group_ = engine().add_group({.weight_decay = 0.1});
  ParameterId embedding_ = trainer_.add("embedding", {1.0F, 2.0F, 3.0F, 4.0F}, group_);
};

TEST_F(TiedWeights, BelongToOneGroup) {
  ParameterSpec head = second_name("head");
  head.group = other_group_;
  expect_error(ErrorCode::invalid_argument, {"'head'", "'embedding'", "group"},
               [&] { engine().add_parameter(head); });
  head.group = group_;  // the refused name is still free
  EXPECT_EQ(engine().add_parameter(head), embedding_);
}

TEST_F(TiedWeights, HaveTheMasterOfTheirFirstName) {
  const std::vector<float> master = {5.0F, 6.0F, 7.0F, 8.0F};
  ParameterSpec head = second_name("head");
  head.master = master;
  expect_error(ErrorCode::invalid_argument, {"'head'", "'embedding'", "master"},
               [&] { engine().add_parameter(head); });
  head.master = {};
  EXPECT_EQ(engine().add_parameter(head), embedding_);
  engine().commit();
  EXPECT_EQ(trainer_.state(embedding_).p, (std::vector<float>{1.0F, 2.0F, 3.0F, 4.0F}));
}

TEST_F(TiedWeights, KeepEveryNameTheyHave) {
  EXPECT_EQ(engine().add_parameter(second_name("head")), embedding_);
  EXPECT_EQ(engine().add_parameter(second_name("third")), embedding_);
  ParameterSpec again = second_name("head");
  expect_error(ErrorCode::invalid_argument, {"'head'", "registered already"},
               [&] { engine().add_parameter(again); });
  again.data = trainer_.make({1.0F, 2.0F, 3.0F, 4.0F});
  expect_error(ErrorCode::invalid_argument, {"'head'", "registered already"},
               [&] { engine().add_parameter(again); });
}

/// Neighbours of a weight are told from overlaps on either side of it, whatever came first.
TEST_F(TiedWeights, OverlapsAreRefusedAndNeighboursAreNot) {
  ParameterSpec whole = second_name("block");
  whole.elems = 12;
  whole.data = trainer_.make(std::vector<float>(12, 1.0F));
  engine().add_parameter(part(whole, 4, 4));
  struct Range {
    std::size_t first, elems;
  };
  for (const Range range : {Range{0, 5}, {3, 2}, {4, 3}, {4, 5}, {5, 2}, {7, 5}, {0, 12}}) {
    ParameterSpec overlap = part(whole, range.first, range.elems);
    overlap.name += " overlap";
    expect_error(ErrorCode::invalid_argument, {overlap.name, "overlaps 'block[4]'"},
                 [&] { engine().add_parameter(overlap); });
  }
  engine().add_parameter(part(whole, 8, 4));
  engine().add_parameter(part(whole, 0, 4));
  engine().commit();
  EXPECT_EQ(engine().ledger().trainable_elems, 16u);
}

TEST_F(TiedWeights, AnEmptyParameterMayPointIntoAnother) {
  ParameterSpec whole = second_name("block");
  whole.data = trainer_.make(std::vector<float>(4, 1.0F));
  const ParameterId empty = engine().add_parameter(part(whole, 2, 0));
  const ParameterId block = engine().add_parameter(whole);
  const ParameterId later = engine().add_parameter(part(whole, 1, 0));
  EXPECT_NE(empty, block);
  EXPECT_NE(later, block);
  EXPECT_NE(later, empty);
  ParameterSpec at_start = part(whole, 0, 0);
  EXPECT_NE(engine().add_parameter(at_start), block);
  engine().commit();
  EXPECT_EQ(engine().ledger().trainable_elems, 8u);
  EXPECT_TRUE(trainer_.step({{block, {1.0F, 1.0F, 1.0F, 1.0F}}}).applied());
}

}  // namespace
}  // namespace outboard::testing
