// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "rig.hpp"

namespace outboard::testing {
namespace {

void expect_refused(const sim::Options& options, std::string_view field, std::string_view value) {
  expect_error(ErrorCode::invalid_config, {field, value}, [&] { (void)Device::sim(options); });
}

TEST(SimOptions, ContradictionsAreNamedWithFieldAndValue) {
  sim::Options options;
  options.memory_bytes = 100;
  expect_refused(options, "memory_bytes", "100");
  options = {};
  options.rates.link_up_bytes_per_s = -2.0;
  expect_refused(options, "link_up_bytes_per_s", "-2");
  options = {};
  options.rates.device_bytes_per_s = std::numeric_limits<double>::quiet_NaN();
  expect_refused(options, "device_bytes_per_s", "nan");
  options = {};
  options.rates.host_elems_per_s = {1e9, -1.0};
  expect_refused(options, "host_elems_per_s", "-1");
  options = {};
  options.rates.copy_latency = -5ns;
  expect_refused(options, "copy_latency", "-5");
  options = {};
  options.max_random_delay = 5ns;
  expect_refused(options, "max_random_delay", "threads");
  options = {};
  options.faults = {{sim::Call::notify, 0, true}};
  expect_refused(options, "notify", "from 1");
}

TEST(SimOptions, ADeviceLargerThanTheAddressSpaceIsOutOfMemory) {
  sim::Options options;
  options.memory_bytes = std::size_t{1} << 60;
  expect_error(ErrorCode::out_of_memory, {"memory_bytes"}, [&] { (void)Device::sim(options); });
}

TEST(SimOptions, HostRatesCountFromTheFirstNode) {
  sim::Options options = virtual_options();
  EXPECT_EQ(Rig(options).device.host_elems_per_s(3), 0.0);
  options.rates.host_elems_per_s = {1e9, 2e9};
  Rig rig(options);
  EXPECT_EQ(rig.device.host_elems_per_s(0), 1e9);
  EXPECT_EQ(rig.device.host_elems_per_s(1), 2e9);
  EXPECT_EQ(rig.device.host_elems_per_s(7), 2e9);
}

TEST(SimOptions, TheDeviceSaysWhatItIs) {
  Rig real(thread_options());
  Rig virtually(virtual_options(9));
  EXPECT_EQ(real.gpu.device().name(), "sim");
  EXPECT_EQ(real.device.virtual_loop(), nullptr);
  ASSERT_NE(virtually.device.virtual_loop(), nullptr);
  EXPECT_EQ(virtually.device.virtual_loop()->seed(), 9u);
  EXPECT_TRUE(real.device.stream_memory_ops());
}

TEST(SimOptions, WithoutStreamMemoryOperationsThereAreNoFlags) {
  sim::Options options = virtual_options();
  options.stream_memory_ops = false;
  Rig rig(options);
  EXPECT_FALSE(rig.device.stream_memory_ops());
  expect_error(ErrorCode::unsupported, {"stream_memory_ops"},
               [&] { (void)rig.device.create_flag(); });
}

}  // namespace
}  // namespace outboard::testing
