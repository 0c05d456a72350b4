// SPDX-License-Identifier: Apache-2.0
/// Bits that no compiler, flag or target may move: three steps of every rule, gradient format,
/// weight format and rounding. When a rule is changed on purpose, the failure prints its new row.
#include "simd/digest.hpp"
#include "tests/simd/update_support.hpp"

namespace outboard::simd::testing {
namespace {

class GoldenOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(GoldenOnEveryTarget);

struct WeightKind {
  Format format;
  bool at_random;
};
constexpr std::array kKinds = {WeightKind{Format::f16, false}, WeightKind{Format::f16, true},
                               WeightKind{Format::bf16, false}, WeightKind{Format::bf16, true},
                               WeightKind{Format::f32, false}};
using Row = std::array<std::uint64_t, kFormats.size() * kKinds.size()>;

std::uint64_t result_bits(const Tensor& tensor) {
  std::uint64_t bits = digest_state({.parameter = 2,
                                     .first_element = 0,
                                     .param = tensor.param,
                                     .state = {tensor.state[0], tensor.state[1]},
                                     .ema = tensor.ema});
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    bits = (bits ^ tensor.weight_bits(i)) * 0x100000001B3U;
  }
  return bits;
}

std::uint64_t three_steps(const RuleScalars& rule, Format grad, const WeightKind& kind) {
  Random random(20'261'129);
  Tensor tensor(2003, grad, kind.format);
  fill_ordinary(tensor, random);
  make_states_legal(tensor, rule);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    for (std::size_t i = 0; i < tensor.size(); ++i) tensor.set_grad(i, finite_bits(random, grad));
    (void)full_step(tensor.shard(), rule,
                    {.rounding = {kind.at_random, step}, .ema_one_minus_decay = 0.125F});
  }
  return result_bits(tensor);
}

Row row_of(const RuleScalars& rule) {
  Row row = {};
  auto at = row.begin();
  for (const Format grad : kFormats) {
    for (const WeightKind& kind : kKinds) *at++ = three_steps(rule, grad, kind);
  }
  return row;
}

std::string text_of(const Row& row) {
  std::ostringstream text;
  text << std::hex << std::uppercase;
  for (const std::uint64_t bits : row) text << "0x" << bits << "U, ";
  return text.str();
}

const std::vector<Row>& golden() {
  static const std::vector<Row> rows = {
      // clang-format off
      {0x5DE85773E0AB3764U, 0x08AF1A33855F8B3BU, 0xFAC6E41F27C8721BU, 0xE63153B9749F614EU,  // adamw
       0xA35EA937E864F1CBU, 0x359AB2BCFF87FBE1U, 0x2E21B814F97859B0U, 0xF5AEE2924DA6F57BU,
       0x98979ED6C083E4A1U, 0xF8792699DCB50D60U, 0x23121026B3B095B3U, 0xB8B89EFCEF6FCFB5U,
       0xE98087A564CF60A3U, 0x2FB697A4ADC4AAD5U, 0x083C02105BD8E29AU},
      {0xA0076AD87BB92C0CU, 0xE521D19913A0C490U, 0x2A22A50710E08CE3U, 0x727A0EDC58974D8CU,  // adam
       0x524DBCAC1C8FED1CU, 0x506D0D905CCC1724U, 0xB6B4BDF9BC6CBBD1U, 0x374B621A03AD6C64U,
       0xF794E0E7387834CFU, 0x3FF4C1990476E323U, 0xF8A92B8D40751680U, 0xC4738F21D09785ABU,
       0x8FC72AB1997FE8CEU, 0x598BE8B95964887DU, 0xAD290BE6BE768A6BU},
      {0x8032FB16E668BE51U, 0x9047342B7029F8EDU, 0x8FD4416D45E581FDU, 0x3189B9D87B4E4E41U,  // sgd
       0xC9E0257A2FFFE7D8U, 0x7A8284EC8C379E6CU, 0xEF0FCCF5DC2D44E1U, 0x51F39B9068D97CA2U,
       0xC00B942495FD2C24U, 0x5B5551873EC01FF4U, 0x939C44F223CF0921U, 0x0D9FC1D5449E6C00U,
       0x2E09E1EF4794CD80U, 0x3D30F07D15A50B6AU, 0x6F5E0C0852AF7628U},
      {0x4258CC43C3CBF572U, 0xE895ED6A2E7F4686U, 0xAEE831CAD874A516U, 0x11C0FE736C815746U,  // sgd_momentum_first
       0xD806B5F0ABD6DF3BU, 0x334C2FE0F91C8A74U, 0xFE443F7D21BFDCD9U, 0xD2147AAD1A501F6AU,
       0x730803012933F5BCU, 0x2BEF6B222350CA2CU, 0x6ED006677C715163U, 0x1A3851FCB39D84E2U,
       0x541E048E624BD996U, 0xD6700AAA211827D8U, 0x3C0FC4C3DCCD325AU},
      {0x50C16BE671D86F3DU, 0x4DACF9C578761D6FU, 0xDDCD2210F22E32DAU, 0x9BCDA2CFBC61CF8EU,  // sgd_momentum
       0x6798504DA2526FA1U, 0xC7DB8ED69A132E15U, 0x61E6890B97FC7769U, 0x7129D40EBF2B6533U,
       0xA422EDB3911EB47BU, 0x29175F4E024D241CU, 0x2189CBD149782BFFU, 0x72BD6DD8F1B5E8E6U,
       0x7BCC403E860BC577U, 0xB9FD26152BD494BFU, 0x6D15D19F565258D9U},
      {0xFDA42CA71E971137U, 0x37FDD6A5DE0E147AU, 0x9FC2586CD6E40B9EU, 0x2290D05B87DF7E60U,  // sgd_nesterov
       0x0274FD8A863300B4U, 0x7ECD57100AA16E36U, 0xA1840E3BB1600AF3U, 0x563BD6596FF9CF54U,
       0x4B4D50385D318424U, 0xEDD15FB909329B4FU, 0x44212B4740BCA5BFU, 0x642CD1EA707DFAA6U,
       0x2B0258E92AD77CFEU, 0x6DF887F173DC3B0EU, 0x267B7082FAB3FE85U},
      {0xE4CEFFC2C45D976FU, 0x74AB1548FA673256U, 0x9F4D960B4673026FU, 0xBA812F1A7764B903U,  // lion
       0xE114D700BF6A4FD5U, 0xD947AA07019188D0U, 0x0AD9F1FF7FF72558U, 0x240FB4D60408AAA5U,
       0x59A1AAC798304402U, 0x34FEBE54141EA426U, 0x2111AF3461010AF0U, 0x98E87345F2B4D590U,
       0x35A52C9D273C7249U, 0xA3798ED54618DD53U, 0xF7D001E50C449A4EU},
      {0xD7C2DC6D541B29EBU, 0x66062F5E38E1D9FFU, 0x669368343162A5EEU, 0x32CE56C309EC13A4U,  // adagrad
       0xA7D6F427494387ECU, 0x270D9ED60842993AU, 0xD34F5A10F5EE4BC6U, 0xA54C0467905C7179U,
       0x8D221AB1D6B5AA6DU, 0xD76562FCFFB10DF9U, 0x06FA3DEA0E40514EU, 0x1B6E52B0F5582F11U,
       0xE3EB79E3698F54FDU, 0x6AF937BE4F719539U, 0x170D986A312FF830U},
      {0x3F7925A467A798F1U, 0xF6D5D9700776FBA5U, 0x95CD6DE1E1F31178U, 0x02A8567BCE1D9056U,  // lamb
       0xAF699428B4BA7F2EU, 0x0F7BF8FBDBCB89D7U, 0xE348074DC077BC70U, 0x2F59913BF7D73AD1U,
       0x694F0F30EDC02CD6U, 0x7DAEA9B3B4E88223U, 0x9421C9296139EE6FU, 0x65C867B870BF3BE5U,
       0xC845A46899F9C16FU, 0x8EF1D1E63B60A7F0U, 0x29402D993EFD3DA5U},
      // clang-format on
  };
  return rows;
}

TEST_P(GoldenOnEveryTarget, ThreeStepsGiveTheseBits) {
  const std::vector<RuleCase> rules = every_rule({.coeff = 0x1p-10});
  ASSERT_EQ(golden().size(), rules.size());
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const Row row = row_of(rules[i].scalars);
    EXPECT_TRUE(row == golden()[i]) << rules[i].name << ": {" << text_of(row) << "},";
  }
}

}  // namespace
}  // namespace outboard::simd::testing
