// SPDX-License-Identifier: Apache-2.0
/// Lengths, offsets, shard borders and shared memory change nothing, and nothing outside is
/// touched: every rule, format and rounding.
#include <cstdlib>
#include <memory>

#include "tests/simd/update_support.hpp"

namespace outboard::simd::testing {
namespace {

class UpdateLayoutOnEveryTarget : public OnEveryTarget {};
OUTBOARD_ON_EVERY_TARGET(UpdateLayoutOnEveryTarget);

constexpr std::size_t kMost = 4097;
constexpr std::size_t kOffsets = 16;

/// All to 130, more than twice the longest vector of 16-bit elements, what lies around powers of
/// two, and 16 more up to kMost, other ones for each trial. With OUTBOARD_TEST_EVERY_SIZE every
/// one.
std::vector<std::size_t> sizes(Random& random) {
  const bool every_one = std::getenv("OUTBOARD_TEST_EVERY_SIZE") != nullptr;
  std::vector<std::size_t> all;
  for (std::size_t size = 0; size <= (every_one ? kMost : 130); ++size) all.push_back(size);
  if (every_one) return all;
  all.insert(all.end(), {255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097});
  for (int i = 0; i < 16; ++i) all.push_back(131 + random.below(kMost - 131));
  return all;
}

/// Memory that ends at a page which cannot be touched. What lies before a stream is a canary; what
/// lies behind it, up to that page, as well.
class Fence {
 public:
  explicit Fence(std::size_t most_bytes) : array_(most_bytes + kCanary + kOffsets * 4) {}
  /// `bytes` of `from`, so that they end `before_end` bytes before the page.
  std::byte* place(const void* from, std::size_t bytes, std::size_t before_end) {
    const std::span<std::byte> room = array_.span();
    first_ = room.size() - before_end - bytes;
    bytes_ = bytes;
    std::fill_n(room.begin() + static_cast<std::ptrdiff_t>(first_ - kCanary), kCanary, kMark);
    std::fill(room.end() - static_cast<std::ptrdiff_t>(before_end), room.end(), kMark);
    std::byte* at = room.data() + first_;
    if (bytes > 0) std::memcpy(at, from, bytes);
    return at;
  }
  [[nodiscard]] bool intact() {
    const std::span<std::byte> room = array_.span();
    const auto is_mark = [](std::byte b) { return b == kMark; };
    return std::ranges::all_of(room.subspan(first_ - kCanary, kCanary), is_mark) &&
           std::ranges::all_of(room.subspan(first_ + bytes_), is_mark);
  }
  [[nodiscard]] bool holds(const void* expected) {
    return bytes_ == 0 || std::memcmp(array_.span().data() + first_, expected, bytes_) == 0;
  }

 private:
  static constexpr std::size_t kCanary = 64;
  static constexpr std::byte kMark{0xA5};
  GuardedArray<std::byte> array_;
  std::size_t first_ = kCanary, bytes_ = 0;
};

struct Fences {
  Fence grad{kMost * 4}, weight{kMost * 4}, param{kMost * 4}, state0{kMost * 4}, state1{kMost * 4},
      ema{kMost * 4};
  [[nodiscard]] bool intact() {
    return grad.intact() && weight.intact() && param.intact() && state0.intact() &&
           state1.intact() && ema.intact();
  }
};

struct Trial {
  const RuleScalars& rule;
  const UpdateOptions& options;
  const Tensor& old;
  const Tensor& expected;
};

/// The first `size` elements, each stream `offset` elements before the end of its memory.
::testing::AssertionResult same_when_fenced(const Trial& t, Fences& fences, std::size_t size,
                                            std::size_t offset) {
  const std::size_t grad_bytes = format_bytes(t.old.grad_format);
  const std::size_t weight_bytes = format_bytes(t.old.weight_format);
  const auto floats = [&](Fence& fence, const std::vector<float>& from) {
    auto* at = reinterpret_cast<float*>(fence.place(from.data(), size * 4, offset * 4));
    return std::span<float>(at, size);
  };
  const UpdateShard shard = {
      .grad = {fences.grad.place(t.old.grad.data(), size * grad_bytes, offset * grad_bytes),
               t.old.grad_format},
      .weight = {fences.weight.place(t.old.weight.data(), size * weight_bytes,
                                     offset * weight_bytes),
                 t.old.weight_format},
      .param = floats(fences.param, t.old.param),
      .state = {floats(fences.state0, t.old.state[0]), floats(fences.state1, t.old.state[1])},
      .ema = floats(fences.ema, t.old.ema)};
  (void)full_step(shard, t.rule, t.options);
  const Tensor& e = t.expected;
  const bool same = fences.grad.holds(t.old.grad.data()) && fences.weight.holds(e.weight.data()) &&
                    fences.param.holds(e.param.data()) && fences.state0.holds(e.state[0].data()) &&
                    fences.state1.holds(e.state[1].data()) && fences.ema.holds(e.ema.data());
  if (same && fences.intact()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << size << " elements, " << offset << " before the end, "
                                       << (same ? "wrote outside" : "differ");
}

/// Calls body(trial) for every rule, format and rounding; `expected` was made element by element.
template <class Body>
void for_each_trial(Random& random, std::size_t size, const Body& body) {
  for (const RuleCase& rule : every_rule({.coeff = 1e-3})) {
    for (const Format grad : kFormats) {
      for (const Format weight : kFormats) {
        for (const bool at_random : {false, true}) {
          const UpdateOptions options = {.rounding = {at_random, 77}, .ema_one_minus_decay = 0.01F};
          SCOPED_TRACE(rule.name + " " + format_name(grad) + " to " + format_name(weight) +
                       (at_random ? " at random" : ""));
          Tensor old(size, grad, weight);
          fill_ordinary(old, random);
          make_states_legal(old, rule.scalars);
          Tensor expected = old;
          for (std::size_t i = 0; i < size; ++i) {
            (void)full_step(expected.shard(i, 1), rule.scalars, options);
          }
          body(Trial{rule.scalars, options, old, expected});
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(UpdateLayoutOnEveryTarget, AnyLengthAtAnyOffsetUpToAGuardPage) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed());
  const auto fences = std::make_unique<Fences>();
  for_each_trial(random, kMost, [&](const Trial& trial) {
    for (const std::size_t size : sizes(random)) {
      for (std::size_t offset = 0; offset < kOffsets; ++offset) {
        ASSERT_TRUE(same_when_fenced(trial, *fences, size, offset));
      }
    }
  });
}

TEST_P(UpdateLayoutOnEveryTarget, RaggedShardsEqualOneShard) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 1);
  for_each_trial(random, 3001, [&](const Trial& trial) {
    for (int round = 0; round < 3; ++round) {
      Tensor pieces = trial.old;
      for (std::size_t first = 0; first < pieces.size();) {
        const std::size_t count = std::min(pieces.size() - first, random.below(700));
        (void)full_step(pieces.shard(first, count), trial.rule, trial.options);
        first += count;
      }
      ASSERT_TRUE(same_result(pieces, trial.expected));
    }
  });
}

TEST_P(UpdateLayoutOnEveryTarget, WeightInPlaceOfTheGradientEqualsSeparate) {
  SCOPED_TRACE(seed_text());
  Random random(test_seed() + 2);
  for_each_trial(random, 1029, [&](const Trial& trial) {
    if (format_bytes(trial.old.grad_format) != format_bytes(trial.old.weight_format)) return;
    Tensor shared = trial.old;
    UpdateShard shard = shared.shard();
    shard.weight.data = shared.grad.data();
    (void)full_step(shard, trial.rule, trial.options);
    shared.weight = shared.grad;
    ASSERT_TRUE(same_result(shared, trial.expected));
  });
}

TEST_P(UpdateLayoutOnEveryTarget, WithoutAverageNothingOfItIsTouched) {
  Random random(3);
  for (const RuleCase& rule : every_rule({})) {
    Tensor with(100, Format::f16, Format::f16);
    fill_ordinary(with, random);
    make_states_legal(with, rule.scalars);
    Tensor without = with, off = with;
    UpdateShard shard = without.shard();
    shard.ema = {};
    (void)full_step(with.shard(), rule.scalars, {.ema_one_minus_decay = 0.5F});
    (void)full_step(shard, rule.scalars, {.ema_one_minus_decay = 0.5F});
    (void)full_step(off.shard(), rule.scalars, {});
    EXPECT_TRUE(same_bits(without.ema, off.ema));
    EXPECT_FALSE(same_bits(without.ema, with.ema)) << rule.name;
    EXPECT_TRUE(same_bits(without.param, with.param) && same_bits(off.param, with.param));
  }
}

}  // namespace
}  // namespace outboard::simd::testing
