// SPDX-License-Identifier: Apache-2.0
// Every kind of call fails once, at the call and when it runs, and the device is lost cleanly.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "rig.hpp"

namespace outboard::testing {
namespace {

using sim::Call;

constexpr Call kCalls[] = {Call::allocate,       Call::register_host, Call::create_stream,
                           Call::create_event,   Call::record,        Call::wait_event,
                           Call::notify,         Call::copy_to_host,  Call::copy_to_device,
                           Call::copy_on_device, Call::kernel,        Call::wait_flag,
                           Call::write_flag};

std::atomic<int> callbacks{0};

core::Callback count_callback() {
  return {[](void*, std::uint64_t) noexcept { ++callbacks; }, nullptr, 0};
}

/// Makes each kind of call, in an order that lets each one's operation run.
struct Caller {
  explicit Caller(const sim::Options& options) : rig(options) {
    s = rig.gpu.create_stream("work");
    memory = rig.allocate<std::byte>(256);
    event = rig.device.create_event();
    if (rig.device.stream_memory_ops()) flag = rig.device.create_flag();
  }
  ~Caller() { rig.gpu.destroy_stream(s); }

  void make(Call call) {
    device::Backend& device = rig.device;
    switch (call) {
      case Call::allocate:
        return device.release(device.allocate(1));
      case Call::register_host:
        (void)device.register_host(host);
        return device.unregister_host(host);
      case Call::create_stream:
        return device.destroy_stream(device.create_stream("short-lived"));
      case Call::create_event:
        return device.destroy_event(device.create_event());
      case Call::record:
        return device.record(event, s);
      case Call::wait_event:
        return device.wait_event(s, event);
      case Call::notify:
        return device.notify(event, count_callback());
      case Call::copy_to_host:
        return device.copy_to_host(host, memory, s);
      case Call::copy_to_device:
        return device.copy_to_device(memory, host, s);
      case Call::copy_on_device:
        return device.copy_on_device(memory, memory + 128, 128, s);
      case Call::kernel:
        return device.fill_zero(s, memory, 256);
      case Call::wait_flag:
        return device.wait_flag(s, flag, 0);
      case Call::write_flag:
        return device.write_flag(flag, 1);
    }
  }

  Rig rig;
  NativeStream s;
  std::byte* memory = nullptr;
  device::Event event;
  device::Flag flag;
  std::vector<std::byte> host = std::vector<std::byte>(256);
};

/// How many of them the constructor above has made.
std::uint64_t made_by_setup(Call call) {
  return call == Call::allocate || call == Call::create_stream || call == Call::create_event ? 1
                                                                                             : 0;
}

using Case = std::tuple<sim::Mode, Call>;
class SimFault : public ::testing::TestWithParam<Case> {
 protected:
  static Call call() { return std::get<1>(GetParam()); }
  static sim::Options failing(std::uint64_t nth, bool at_call) {
    sim::Options options =
        std::get<0>(GetParam()) == sim::Mode::threads ? thread_options() : virtual_options();
    options.faults = {{call(), nth + made_by_setup(call()), at_call}};
    return options;
  }
};

TEST_P(SimFault, AtTheCallThrowsAndTheDeviceGoesOn) {
  Caller caller(failing(2, true));
  caller.make(call());
  if (call() == Call::write_flag) {  // may not throw: loses the device either way
    caller.make(call());
    EXPECT_TRUE(caller.rig.device.lost());
    return;
  }
  expect_error(ErrorCode::device_failure, {to_string(call()), "injected failure"},
               [&] { caller.make(call()); });
  EXPECT_FALSE(caller.rig.device.lost());
  EXPECT_EQ(caller.rig.device.lost_reason(), "");
  caller.make(call());
  caller.rig.gpu.synchronize();
}

TEST_P(SimFault, WhenItRunsLosesTheDeviceForEveryLaterCall) {
  Caller caller(failing(2, false));
  caller.make(call());
  caller.rig.gpu.synchronize();
  if (call() == Call::register_host) {  // runs at the call
    expect_error(ErrorCode::device_failure, {"injected failure"}, [&] { caller.make(call()); });
    EXPECT_EQ(caller.rig.gpu.counters().live_registrations, 0U);
  } else {
    caller.make(call());
  }
  // The wait ends by the loss; it may come before the wait begins.
  expect_error(ErrorCode::device_failure, {to_string(call()), "injected failure"},
               [&] { caller.rig.gpu.synchronize(); });
  ASSERT_TRUE(caller.rig.device.lost());
  const std::string reason = caller.rig.device.lost_reason();
  EXPECT_NE(reason.find(std::string(to_string(call())) + ": injected failure (call " +
                        std::to_string(2 + made_by_setup(call())) + " of this kind)"),
            std::string::npos)
      << reason;
  for (const Call later : kCalls) {
    if (later == Call::write_flag) {
      caller.make(later);
    } else {
      expect_error(ErrorCode::device_failure, {reason}, [&] { caller.make(later); });
    }
  }
  EXPECT_THROW((void)caller.rig.device.reached(caller.event), Error);
  EXPECT_THROW(caller.rig.device.synchronize(caller.event, "the test"), Error);
  EXPECT_THROW(caller.rig.gpu.synchronize(caller.s), Error);
  caller.rig.gpu.release(caller.memory);
  caller.rig.device.destroy_event(caller.event);
  caller.rig.device.destroy_flag(caller.flag);
  EXPECT_EQ(caller.rig.gpu.counters().live_allocations, 0u);
  EXPECT_EQ(caller.rig.device.lost_reason(), reason);
}

INSTANTIATE_TEST_SUITE_P(EveryCall, SimFault,
                         ::testing::Combine(::testing::Values(sim::Mode::threads,
                                                              sim::Mode::virtual_time),
                                            ::testing::ValuesIn(kCalls)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param) == sim::Mode::threads
                                                  ? "threads_"
                                                  : "virtual_") +
                                  to_string(std::get<1>(instance.param));
                         });

class SimLost : public ::testing::TestWithParam<sim::Mode> {
 protected:
  static sim::Options options() {
    return GetParam() == sim::Mode::threads ? thread_options() : virtual_options();
  }
};

TEST_P(SimLost, AKernelThatThrowsLosesTheDevice) {
  Rig rig(options());
  const NativeStream s = rig.gpu.create_stream("trainer");
  auto* a = rig.allocate<float>(10);
  rig.gpu.launch(
      s, 0ns, [&](sim::KernelView& view) { (void)view.as<float>(a, 11); }, "backward");
  expect_error(ErrorCode::device_failure, {"backward", "trainer", "past the end"},
               [&] { rig.gpu.synchronize(s); });
  rig.gpu.destroy_stream(s);
}

TEST_P(SimLost, MemoryReleasedUnderAQueuedCopyLosesTheDevice) {
  Rig rig(options());
  const NativeStream s = rig.gpu.create_stream("down");
  auto* a = rig.allocate<std::byte>(100);
  std::vector<std::byte> host(100);
  const device::Flag hold = rig.device.create_flag();
  rig.device.wait_flag(s, hold, 1);
  rig.gpu.copy_to_host(host, a, s);
  rig.gpu.release(a);
  rig.device.write_flag(hold, 1);
  expect_error(ErrorCode::device_failure, {"copy_to_host", "down", "released"},
               [&] { rig.gpu.synchronize(s); });
}

TEST_P(SimLost, QueuedWorkAndCallbacksAreDropped) {
  sim::Options faulty = options();
  faulty.faults = {{Call::kernel, 1, false}};
  Rig rig(faulty);
  const NativeStream broken = rig.gpu.create_stream("broken");
  const NativeStream blocked = rig.gpu.create_stream("blocked");
  const device::Flag hold = rig.device.create_flag();
  const device::Event event = rig.device.create_event();
  std::atomic<int> ran{0};
  callbacks = 0;
  rig.device.wait_flag(blocked, hold, 1);
  rig.gpu.launch(broken, 0ns, [&](sim::KernelView&) { ++ran; });
  try {
    rig.device.record(event, broken);
    rig.device.wait_event(blocked, event);
    rig.device.notify(event, count_callback());
    rig.gpu.launch(blocked, 0ns, [&](sim::KernelView&) { ++ran; });
  } catch (const Error&) {
    EXPECT_TRUE(rig.device.lost());  // in real time the loss may come before any of them
  }
  EXPECT_THROW(rig.gpu.synchronize(), Error);
  rig.device.destroy_stream(blocked);
  rig.device.destroy_stream(broken);
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(callbacks, 0);
  EXPECT_EQ(rig.gpu.counters().live_streams, 0u);
}

TEST_P(SimLost, AWaiterIsWokenByTheLoss) {
  sim::Options faulty = options();
  faulty.faults = {{Call::copy_to_device, 1, false}};
  Rig rig(faulty);
  const NativeStream s = rig.gpu.create_stream();
  auto* a = rig.allocate<std::byte>(64);
  const std::vector<std::byte> host(64);
  rig.gpu.copy_to_device(a, host, s);
  std::mutex mutex;
  std::unique_lock lock(mutex);
  rig.device.waiter().wait(
      lock, [&] { return rig.device.lost(); }, "the test waits for the loss");
  EXPECT_NE(rig.device.lost_reason().find("copy_to_device"), std::string::npos);
}

TEST_P(SimLost, AFlagDestroyedUnderAWaitingStreamLosesTheDevice) {
  Rig rig(options());
  const NativeStream s = rig.gpu.create_stream("waiting");
  const device::Flag flag = rig.device.create_flag();
  rig.device.wait_flag(s, flag, 1);
  rig.device.destroy_flag(flag);
  expect_error(ErrorCode::device_failure, {"flag"}, [&] { rig.gpu.synchronize(s); });
}

TEST_P(SimLost, ADeviceThatGoesWithABlockedStreamDoesNotHang) {
  auto rig = std::make_unique<Rig>(options());
  const NativeStream s = rig->gpu.create_stream();
  auto captured = std::make_shared<int>(0);
  rig->device.wait_flag(s, rig->device.create_flag(), 1);
  rig->gpu.launch(s, 0ns, [captured](sim::KernelView&) { ++*captured; });
  rig.reset();
  EXPECT_EQ(*captured, 0);
  EXPECT_EQ(captured.use_count(), 1);
}

TEST_P(SimLost, ADeviceThatGoesFinishesWhatIsQueued) {
  std::atomic<int> ran{0};
  auto rig = std::make_unique<Rig>(options());
  const NativeStream a = rig->gpu.create_stream();
  const NativeStream b = rig->gpu.create_stream();
  for (int i = 0; i < 20; ++i) {
    rig->gpu.launch(a, 0ns, [&](sim::KernelView&) { ++ran; });
    const sim::EventId event = rig->gpu.create_event();
    rig->gpu.record(event, a);
    rig->gpu.wait_event(b, event);
    rig->gpu.launch(b, 0ns, [&](sim::KernelView&) { ++ran; });
  }
  rig.reset();
  EXPECT_EQ(ran, 40);
}

INSTANTIATE_TEST_SUITE_P(BothModes, SimLost,
                         ::testing::Values(sim::Mode::threads, sim::Mode::virtual_time));

}  // namespace
}  // namespace outboard::testing
