// SPDX-License-Identifier: Apache-2.0
#include "update_bench/check.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "simd/target.hpp"

namespace outboard::update_bench {
namespace {

using simd::Format;

/// Filled data after the steps of a check, two threads on one made-up node.
struct Rig {
  explicit Rig(const Workload& asked)
      : workload(asked),
        machine(topology::synthetic("numa:1 core:2 pu:1")),
        crew(machine, {{2}, "two threads"}),
        layout(make_layout(tensor_sizes(workload), crew.threads_per_node(), 4096)),
        data(machine, std::vector<std::uint64_t>{layout[0].elems}, workload),
        stepper(crew, data, layout, workload) {
    stepper.fill(Values::normal);
    (void)stepper.run(Values::normal, kCheckPasses);
  }
  Workload workload;
  topology::Machine machine;
  Crew crew;
  std::vector<NodeLayout> layout;
  Data data;
  Stepper stepper;
};

Workload small(Rule rule, Format grad, Format weight) {
  Workload workload;
  workload.params = 100'000;
  workload.rule = rule;
  workload.grad = grad;
  workload.weight = weight;
  workload.alias = simd::format_bytes(grad) == simd::format_bytes(weight);
  return workload;
}

TEST(Check, EveryRuleAndFormatIsTheSameOnOneThreadAndAnotherTarget) {
  const std::string before(simd::active_target());
  for (const Rule rule :
       {Rule::adamw, Rule::adam, Rule::sgd, Rule::lion, Rule::adagrad, Rule::lamb}) {
    for (const Format grad : {Format::f16, Format::bf16, Format::f32}) {
      for (const Format weight : {Format::f16, Format::bf16, Format::f32}) {
        const Rig rig(small(rule, grad, weight));
        const CheckResult result = check(rig.stepper, rig.workload);
        EXPECT_TRUE(result.equal) << name_of(rule) << ' ' << name_of(grad) << ' ' << name_of(weight)
                                  << " against " << result.target;
        EXPECT_EQ(result.elems, 32'768U);
      }
    }
  }
  EXPECT_EQ(simd::active_target(), before);
}

TEST(Check, StochasticWeightsToo) {
  Workload workload = small(Rule::adamw, Format::bf16, Format::bf16);
  workload.stochastic = true;
  const Rig rig(workload);
  EXPECT_TRUE(check(rig.stepper, workload).equal);
}

TEST(Check, ManySmallTensors) {
  Workload workload = small(Rule::adamw, Format::f16, Format::f16);
  workload.tensors = 50;
  const Rig rig(workload);
  const CheckResult result = check(rig.stepper, workload);
  EXPECT_TRUE(result.equal);
  EXPECT_GT(result.elems, 30'000U);  // less the gaps between tensors
}

TEST(Check, SeesOneWrongBitOfStateAndOfWeight) {
  const Workload workload = small(Rule::adamw, Format::f16, Format::f16);
  const Rig rig(workload);
  const std::uint64_t border = rig.layout[0].slices[0].end;
  const View view = rig.stepper.view(0);
  auto* bits = reinterpret_cast<std::uint32_t*>(&view.state[1][border - 1]);
  *bits ^= 1U;
  EXPECT_FALSE(check(rig.stepper, workload).equal);
  *bits ^= 1U;
  EXPECT_TRUE(check(rig.stepper, workload).equal);
  static_cast<std::uint16_t*>(view.weight.data)[border + 1'000] ^= 1U;
  EXPECT_FALSE(check(rig.stepper, workload).equal);
}

TEST(Stepper, TheRoofChangesNoBit) {
  const Workload workload = small(Rule::adamw, Format::f16, Format::f16);
  Rig rig(workload);
  (void)rig.stepper.run_roof(3);
  EXPECT_TRUE(check(rig.stepper, workload).equal);
}

}  // namespace
}  // namespace outboard::update_bench
