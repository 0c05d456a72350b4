// SPDX-License-Identifier: Apache-2.0
#include "topology/binding_probe.hpp"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace outboard::topology {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

BindingCalls answering(int mbind, int set_mempolicy, int sched_setaffinity) {
  return {.mbind = [=] { return mbind; },
          .set_mempolicy = [=] { return set_mempolicy; },
          .sched_setaffinity = [=] { return sched_setaffinity; }};
}

TEST(BindingProbe, NothingRefusedIsNothingToSay) {
  const BindingReport report = probe_binding(answering(0, 0, 0));
  EXPECT_FALSE(report.memory);
  EXPECT_FALSE(report.threads);
}

TEST(BindingProbe, ARefusalNamesCallErrnoAndTheContainersFlag) {
  for (const int error : {EPERM, ENOSYS}) {
    const std::string number = "(errno " + std::to_string(error) + ")";
    const BindingReport both = probe_binding(answering(error, error, 0));
    ASSERT_TRUE(both.memory);
    EXPECT_TRUE(has(both.memory->text(), "mbind: ") && has(both.memory->text(), number))
        << both.memory->text();
    EXPECT_TRUE(has(both.memory->remedy(), "--cap-add SYS_NICE"));
    EXPECT_TRUE(has(both.memory->remedy(), "--security-opt seccomp=FILE"));
    EXPECT_FALSE(both.threads);
    const BindingReport policy = probe_binding(answering(0, error, error));
    ASSERT_TRUE(policy.memory && policy.threads);
    EXPECT_TRUE(has(policy.memory->text(), "set_mempolicy: ")) << policy.memory->text();
    EXPECT_TRUE(has(policy.threads->text(), "sched_setaffinity: ")) << policy.threads->text();
    EXPECT_TRUE(has(policy.threads->remedy(), "--security-opt seccomp=FILE"));
  }
}

TEST(BindingProbe, TheRemedyIsThatOfTheError) {
  for (const int error : {EINVAL, ENOMEM}) {
    EXPECT_FALSE(has(memory_policy_remedy(error), "SYS_NICE"));
    EXPECT_EQ((BindingRefusal{"mbind", error}.remedy()), memory_policy_remedy(error));
  }
  EXPECT_TRUE(has(memory_policy_remedy(EINVAL), "Mems_allowed_list"));
  EXPECT_TRUE(has(memory_policy_remedy(EPERM), "SYS_NICE"));
}

TEST(BindingProbe, LeavesPolicyAndAffinityAsTheyWere) {
  const auto policy = [] {
    int mode = -1;
    std::array<unsigned long, 64> nodes{};
    (void)syscall(SYS_get_mempolicy, &mode, nodes.data(), 4096UL, nullptr, 0UL);
    return std::pair(mode, nodes);
  };
  cpu_set_t before;
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const auto policy_before = policy();
  (void)probe_binding(system_binding_calls());
  EXPECT_EQ(policy(), policy_before);
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(BindingProbe, APolicyOfTheCallersSurvivesIt) {
  const std::array<unsigned long, 64> first_node = {1};
  if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, first_node.data(), 4096UL) != 0) {
    GTEST_SKIP() << "memory policies are not permitted here";
  }
  EXPECT_FALSE(probe_binding(system_binding_calls()).memory);
  int mode = -1;
  EXPECT_EQ(syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL), 0);
  EXPECT_EQ(mode, MPOL_PREFERRED);
  EXPECT_EQ(syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL), 0);
}

}  // namespace
}  // namespace outboard::topology
