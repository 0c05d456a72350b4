// SPDX-License-Identifier: Apache-2.0
#include "order1.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "text_support.hpp"

namespace text {
namespace {

TEST(Order1, CountsByHand) {
  const auto bytes = test::as_bytes("abacab");
  const std::vector<Range> ranges{{0, 6}};
  const Order1 model(bytes, ranges);
  // After a: b twice, c once; two kinds. b alone: (2 + 1) / (6 + 256).
  EXPECT_DOUBLE_EQ(model.probability('a', 'b'), (2.0 + 2.0 * 3.0 / 262.0) / 5.0);
  EXPECT_DOUBLE_EQ(model.probability('a', 'z'), (2.0 * 1.0 / 262.0) / 5.0);
  EXPECT_DOUBLE_EQ(model.probability('z', 'a'), 4.0 / 262.0) << "nothing follows z: a alone";
}

TEST(Order1, ProbabilitiesAddUpToOneAfterEveryByte) {
  const auto bytes = test::as_bytes(test::made_up_text(5000, 1));
  const std::vector<Range> ranges{{0, 2000}, {2500, 5000}};
  const Order1 model(bytes, ranges);
  for (unsigned before = 0; before < 256; ++before) {
    double sum = 0.0;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const double p =
          model.probability(static_cast<std::uint8_t>(before), static_cast<std::uint8_t>(byte));
      EXPECT_GT(p, 0.0);
      sum += p;
    }
    EXPECT_NEAR(sum, 1.0, 1e-12) << before;
  }
}

TEST(Order1, CountsNothingOutsideTheRangesNorAcrossThem) {
  const auto bytes = test::as_bytes("xyQQxy");
  const Order1 model(bytes, std::vector<Range>{{0, 2}, {4, 6}});
  const Order1 inside(test::as_bytes("xyxy"), std::vector<Range>{{0, 2}, {2, 4}});
  for (const char before : {'x', 'y', 'Q'}) {
    for (const char byte : {'x', 'y', 'Q'}) {
      EXPECT_EQ(
          model.probability(static_cast<std::uint8_t>(before), static_cast<std::uint8_t>(byte)),
          inside.probability(static_cast<std::uint8_t>(before), static_cast<std::uint8_t>(byte)));
    }
  }
}

TEST(Order1, LossIsTheMeanOfTheLogarithms) {
  const auto bytes = test::as_bytes("abacab");
  const Order1 model(bytes, std::vector<Range>{{0, 6}});
  const std::vector<std::size_t> positions{1, 3};
  EXPECT_DOUBLE_EQ(model.loss(bytes, positions), -0.5 * (std::log(model.probability('a', 'b')) +
                                                         std::log(model.probability('a', 'c'))));
}

TEST(Order1, BeatsAddingOneOnText) {
  const auto bytes = test::as_bytes(test::made_up_text(40000, 2));
  const Order1 model(bytes, std::vector<Range>{{0, 30000}});
  std::vector<std::vector<double>> counts(256, std::vector<double>(256, 1.0));
  for (std::size_t i = 1; i < 30000; ++i) counts[bytes[i - 1]][bytes[i]] += 1.0;
  std::vector<std::size_t> positions;
  double add_one = 0.0;
  for (std::size_t i = 30001; i < bytes.size(); ++i) {
    positions.push_back(i);
    double sum = 0.0;
    for (const double count : counts[bytes[i - 1]]) sum += count;
    add_one -= std::log(counts[bytes[i - 1]][bytes[i]] / sum);
  }
  EXPECT_LT(model.loss(bytes, positions), add_one / static_cast<double>(positions.size()));
}

}  // namespace
}  // namespace text
