// SPDX-License-Identifier: Apache-2.0
// Memory, order and notification: what every backend promises.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>

#include "conformance/backends.hpp"
#include "support/expect_error.hpp"

namespace outboard::testing {
namespace {

using device::Event;
using device::Flag;

std::vector<std::uint32_t> counting(std::size_t count, std::uint32_t first = 0) {
  std::vector<std::uint32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// --- memory ---

TEST_P(BackendTest, CopiesBringBackWhatWasSent) {
  const NativeStream s = stream();
  auto* a = allocate<std::uint32_t>(5000);
  auto* b = allocate<std::uint32_t>(5000);
  const auto values = counting(5000, 77);
  upload(a, values, s);
  device_.copy_on_device(b + 1000, a, 4000 * 4, s);
  device_.copy_on_device(b, a + 4000, 1000 * 4, s);
  auto expected = values;
  std::rotate(expected.begin(), expected.begin() + 4000, expected.end());
  EXPECT_EQ(download(b, 5000, s), expected);
  EXPECT_EQ(download(a + 10, 3, s), (std::vector<std::uint32_t>{87, 88, 89}));
}

TEST_P(BackendTest, MemoryIsAlignedCountedAndLimited) {
  const device::MemoryInfo before = device_.memory();
  std::vector<void*> all;
  for (const std::size_t bytes : {1u, 255u, 256u, 257u, 4097u}) {
    all.push_back(device_.allocate(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all.back()) % 256, 0u);
  }
  EXPECT_EQ(std::set<void*>(all.begin(), all.end()).size(), all.size());
  EXPECT_GE(device_.memory().used_bytes, before.used_bytes + 1 + 255 + 256 + 257 + 4097);
  expect_error(ErrorCode::out_of_memory,
               {std::to_string(before.limit_bytes), std::to_string(device_.memory().used_bytes)},
               [&] { (void)device_.allocate(before.limit_bytes); });
  for (void* address : all) device_.release(address);
  EXPECT_EQ(device_.memory().used_bytes, before.used_bytes);
}

TEST_P(BackendTest, RangesOutsideOneLiveAllocationAreRefused) {
  const NativeStream s = stream();
  auto* a = allocate<std::byte>(1000);
  auto* b = allocate<std::byte>(1000);
  std::vector<std::byte> host(1000);
  EXPECT_NO_THROW(device_.check_range(a, 1000));
  EXPECT_NO_THROW(device_.check_range(a + 999, 1));
  EXPECT_THROW(device_.check_range(a + 1, 1000), Error);
  EXPECT_THROW(device_.check_range(a - 1, 2), Error);
  EXPECT_THROW(device_.check_range(host.data(), 1), Error);
  EXPECT_THROW(device_.check_range(nullptr, 1), Error);
  const std::span<std::byte> all(host);
  expect_error(ErrorCode::invalid_argument, {"1000 bytes"},
               [&] { device_.copy_to_host(all, a + 1, s); });
  EXPECT_THROW(device_.copy_to_device(a + 1, all, s), Error);
  EXPECT_THROW(device_.copy_on_device(a + 1, b, 1000, s), Error);
  EXPECT_THROW(device_.copy_on_device(a, b + 1, 1000, s), Error);
  EXPECT_THROW(device_.copy_to_host(all, host.data(), s), Error);
  EXPECT_THROW(device_.fill(s, {a, simd::Format::f16}, 501, 0), Error);
  EXPECT_THROW(device_.fill_zero(s, a, 1001), Error);
  device_.release(b);
  EXPECT_THROW(device_.check_range(b, 1), Error);
  EXPECT_NO_THROW(finish(s)) << "refused calls leave nothing queued";
}

TEST_P(BackendTest, NothingNeedsAnAddressForNoBytes) {
  const NativeStream s = stream();
  device_.copy_to_host({}, nullptr, s);
  device_.copy_to_device(nullptr, {}, s);
  device_.copy_on_device(nullptr, nullptr, 0, s);
  device_.fill(s, {nullptr, simd::Format::f16}, 0, 7);
  device_.fill_zero(s, nullptr, 0);
  device_.to_float(s, nullptr, {}, 0);
  EXPECT_NO_THROW(finish(s));
}

TEST_P(BackendTest, HostMemoryIsRegisteredAndGivenBack) {
  std::vector<std::byte> host(1 << 16);
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(device_.register_host(host));
    device_.unregister_host(host);
  }
}

// --- order ---

TEST_P(BackendTest, AStreamRunsInTheOrderOfItsCalls) {
  const NativeStream s = stream();
  auto* a = allocate<std::uint16_t>(64);
  auto* log = allocate<std::uint16_t>(64 * 100);
  for (std::uint16_t i = 0; i < 100; ++i) {
    device_.fill(s, {a, simd::Format::f16}, 64, i);
    device_.copy_on_device(log + 64 * i, a, 128, s);
  }
  const auto got = download(log, 6400, s);
  for (std::size_t i = 0; i < 6400; ++i) ASSERT_EQ(got[i], i / 64) << i;
}

TEST_P(BackendTest, EventsOrderStreams) {
  const NativeStream a = stream("a");
  const NativeStream b = stream("b");
  auto* x = allocate<std::uint16_t>(1000);
  std::vector<std::uint16_t> host(1000, 1);
  const Flag hold = gate(a);
  device_.fill(a, {x, simd::Format::f16}, 1000, 7);
  const Event filled = mark(a);
  device_.wait_event(b, filled);
  device_.copy_to_host(std::as_writable_bytes(std::span(host)), x, b);
  const Event copied = mark(b);
  EXPECT_FALSE(device_.reached(filled));
  EXPECT_FALSE(device_.reached(copied));
  open(hold);
  device_.synchronize(copied, "the test");
  EXPECT_TRUE(device_.reached(filled));
  EXPECT_TRUE(device_.reached(copied));
  EXPECT_EQ(host, std::vector<std::uint16_t>(1000, 7));
}

TEST_P(BackendTest, TimedEventsTellHowLongWorkTook) {
  const NativeStream on = stream();
  const device::Event first = device_.create_timed_event();
  const device::Event last = device_.create_timed_event();
  EXPECT_THROW((void)device_.elapsed_us(first, last), Error) << "never recorded";
  auto* const memory = allocate<std::byte>(4096);
  const std::int64_t before = device_.now_ns();
  device_.record(first, on);
  for (int i = 0; i < 20; ++i) device_.fill_zero(on, memory, 4096);
  device_.record(last, on);
  finish(on);
  const double us = device_.elapsed_us(first, last);
  EXPECT_GE(us, 0.0);
  EXPECT_LE(us, static_cast<double>(device_.now_ns() - before) * 1e-3);
  EXPECT_EQ(device_.elapsed_us(last, first), -us);
  EXPECT_EQ(device_.elapsed_us(last, last), 0.0);
  device_.destroy_event(first);
  EXPECT_THROW((void)device_.elapsed_us(first, last), Error) << "destroyed";
}

TEST_P(BackendTest, ATimedEventTimesItsLastRecord) {
  const NativeStream on = stream();
  const device::Event first = device_.create_timed_event();
  const device::Event again = device_.create_timed_event();
  auto* const memory = allocate<std::byte>(4096);
  device_.record(again, on);
  device_.record(first, on);
  device_.fill_zero(on, memory, 4096);
  device_.record(again, on);
  finish(on);
  EXPECT_GE(device_.elapsed_us(first, again), 0.0);
  if (!device_.stream_memory_ops()) return;
  const NativeStream held = stream();
  const device::Flag flag = gate(held);
  device_.record(again, held);
  EXPECT_THROW((void)device_.elapsed_us(first, again), Error) << "not reached";
  open(flag);
  finish(held);
  EXPECT_GE(device_.elapsed_us(first, again), 0.0);
}

TEST_P(BackendTest, AnEventNeverRecordedHoldsNobody) {
  const NativeStream s = stream();
  const Event event = device_.create_event();
  EXPECT_TRUE(device_.reached(event));
  device_.wait_event(s, event);
  EXPECT_NO_THROW(finish(s));
  EXPECT_NO_THROW(device_.synchronize(event, "the test"));
}

TEST_P(BackendTest, AWaitMeansTheRecordBeforeItNotALaterOne) {
  const NativeStream early = stream("early");
  const NativeStream late = stream("late");
  const NativeStream waiter = stream("waiter");
  const Event event = mark(early);
  device_.wait_event(waiter, event);
  const Flag hold = gate(late);
  device_.record(event, late);  // re-arms it, for later waits only
  finish(waiter);
  EXPECT_FALSE(device_.reached(event));
  open(hold);
  device_.synchronize(event, "the test");
  EXPECT_TRUE(device_.reached(event));
}

TEST_P(BackendTest, AWaitStillHoldsWhenALaterRecordCompletesFirst) {
  const NativeStream slow = stream("slow");
  const NativeStream fast = stream("fast");
  const NativeStream waiter = stream("waiter");
  auto* x = allocate<std::uint16_t>(64);
  auto* y = allocate<std::uint16_t>(64);
  device_.fill(fast, {x, simd::Format::f16}, 64, 1);
  finish(fast);
  const Flag hold = gate(slow);
  device_.fill(slow, {x, simd::Format::f16}, 64, 2);
  const Event event = mark(slow);
  device_.wait_event(waiter, event);
  device_.copy_on_device(y, x, 128, waiter);
  const Event copied = mark(waiter);
  device_.record(event, fast);
  device_.synchronize(event, "the test");  // the record on the fast stream
  finish(fast);
  EXPECT_FALSE(device_.reached(copied));
  open(hold);
  EXPECT_EQ(download(y, 64, waiter), std::vector<std::uint16_t>(64, 2));
}

TEST_P(BackendTest, FlagsCompareWithWrapAround) {
  const NativeStream s = stream();
  const Flag flag = device_.create_flag();
  device_.wait_flag(s, flag, 0);           // a new flag is 0
  device_.wait_flag(s, flag, 0xFFFFFFF0);  // 16 before 0: passed
  finish(s);
  device_.wait_flag(s, flag, 3);
  const Event three = mark(s);
  device_.write_flag(flag, 2);
  EXPECT_FALSE(device_.reached(three));
  device_.write_flag(flag, 5);
  device_.synchronize(three, "the test");
  device_.write_flag(flag, 0x80000001);
  device_.write_flag(flag, 0xFFFFFFFF);
  device_.wait_flag(s, flag, 1);
  const Event wrapped = mark(s);
  EXPECT_FALSE(device_.reached(wrapped));
  device_.write_flag(flag, 1);
  device_.synchronize(wrapped, "the test");
  device_.destroy_flag(flag);
  EXPECT_FALSE(device_.lost());
}

TEST_P(BackendTest, OneFlagReleasesManyStreamsEachAtItsValue) {
  const Flag flag = device_.create_flag();
  std::vector<Event> events;
  for (std::uint32_t i = 1; i <= 4; ++i) {
    const NativeStream s = stream();
    device_.wait_flag(s, flag, i);
    events.push_back(mark(s));
  }
  for (std::uint32_t i = 1; i <= 4; ++i) {
    device_.write_flag(flag, i);
    device_.synchronize(events[i - 1], "the test");
    for (std::uint32_t later = i; later < 4; ++later) EXPECT_FALSE(device_.reached(events[later]));
  }
}

TEST_P(BackendTest, DestroyingAStreamWaitsForItsWork) {
  auto* x = allocate<std::uint16_t>(4096);
  std::vector<std::uint16_t> host(4096);
  for (std::uint16_t round = 1; round <= 10; ++round) {
    const NativeStream s = device_.create_stream("short-lived");
    for (int i = 0; i < 20; ++i) device_.fill(s, {x, simd::Format::f16}, 4096, round);
    device_.copy_to_host(std::as_writable_bytes(std::span(host)), x, s);
    device_.destroy_stream(s);
    EXPECT_EQ(host, std::vector<std::uint16_t>(4096, round));
  }
}

TEST_P(BackendTest, HandlesOfTheDestroyedAndOfOthersAreRefused) {
  std::shared_ptr<device::Backend> other;
  try {
    other = GetParam().make();
  } catch (const Error& error) {
    if (!GetParam().may_be_alone) throw;
    GTEST_SKIP() << error.what();
  }
  const NativeStream s = stream();
  const NativeStream foreign = other->create_stream("foreign");
  const NativeStream gone = device_.create_stream("gone");
  const Event event = device_.create_event();
  const Event dead = device_.create_event();
  device_.destroy_event(dead);
  device_.destroy_stream(gone);
  for (const NativeStream bad : {foreign, gone, NativeStream{}}) {
    if (bad == NativeStream{} && GetParam().has_default_stream) continue;
    expect_error(ErrorCode::invalid_argument, {"record"}, [&] { device_.record(event, bad); });
    expect_error(ErrorCode::invalid_argument, {"wait_event"},
                 [&] { device_.wait_event(bad, event); });
    expect_error(ErrorCode::invalid_argument, {"fill_zero"},
                 [&] { device_.fill_zero(bad, nullptr, 0); });
  }
  for (const Event bad : {dead, Event{}, other->create_event()}) {
    expect_error(ErrorCode::invalid_argument, {"record"}, [&] { device_.record(bad, s); });
    EXPECT_THROW(device_.notify(bad, {}), Error);
    EXPECT_THROW((void)device_.reached(bad), Error);
  }
  void* foreign_memory = other->allocate(256);
  EXPECT_THROW(device_.fill_zero(s, foreign_memory, 256), Error);
  other->destroy_stream(foreign);
}

// A random program over some buffers, ordered by events only where two operations touch the same
// buffer, must leave what the same program leaves when run one by one.
TEST_P(BackendTest, RandomProgramsGiveWhatTheirOrderPromises) {
  constexpr std::size_t kBuffers = 6;
  constexpr std::size_t kElems = 512;
  const std::uint32_t seed = 20240607;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<NativeStream> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(stream());
  std::vector<std::uint16_t*> buffers;
  std::vector<Event> touched;
  std::vector<std::uint16_t> model(kBuffers, 0);
  for (std::size_t i = 0; i < kBuffers; ++i) {
    buffers.push_back(allocate<std::uint16_t>(kElems));
    device_.fill(streams[0], {buffers[i], simd::Format::f16}, kElems, 0);
    touched.push_back(mark(streams[0]));
  }
  std::vector<std::vector<std::uint16_t>> read(200);
  std::vector<std::uint16_t> expected;
  for (auto& host : read) {
    const NativeStream s = streams[random() % streams.size()];
    const std::size_t from = random() % kBuffers;
    const std::size_t to = (from + 1 + random() % (kBuffers - 1)) % kBuffers;
    const auto value = static_cast<std::uint16_t>(random());
    device_.wait_event(s, touched[from]);
    device_.wait_event(s, touched[to]);
    host.resize(kElems);
    device_.copy_to_host(std::as_writable_bytes(std::span(host)), buffers[from], s);
    device_.copy_on_device(buffers[to], buffers[from], kElems * 2, s);
    device_.fill(s, {buffers[from], simd::Format::f16}, kElems, value);
    device_.record(touched[from], s);
    device_.record(touched[to], s);
    expected.push_back(model[from]);
    model[to] = model[from];
    model[from] = value;
  }
  for (const NativeStream s : streams) finish(s);
  for (std::size_t i = 0; i < read.size(); ++i) {
    ASSERT_EQ(read[i], std::vector<std::uint16_t>(kElems, expected[i])) << "operation " << i;
  }
}

// --- notification ---

thread_local bool inside_notify = false;

struct Notes {
  explicit Notes(core::Waiter& w) : waiter(w) {}
  core::Waiter& waiter;
  std::mutex mutex;
  std::vector<std::uint64_t> came;
  bool inside = false;
  const std::vector<std::uint16_t>* watched = nullptr;
  std::vector<std::uint16_t> seen;

  core::Callback callback(std::uint64_t number) {
    return {[](void* context, std::uint64_t argument) noexcept {
              auto& self = *static_cast<Notes*>(context);
              {
                const std::scoped_lock guard(self.mutex);
                self.inside = self.inside || inside_notify;
                if (self.watched != nullptr) self.seen = *self.watched;
                self.came.push_back(argument);
              }
              self.waiter.wake();
            },
            this, number};
  }
  void wait_for(std::size_t count) {
    std::unique_lock lock(mutex);
    waiter.wait(
        lock, [&] { return came.size() >= count; }, "the test waits for callbacks");
  }
};

TEST_P(BackendTest, NotifyComesOnceAfterTheEventAndNeverInsideTheCall) {
  const NativeStream s = stream();
  auto* x = allocate<std::uint16_t>(256);
  std::vector<std::uint16_t> host(256);
  Notes notes(device_.waiter());
  notes.watched = &host;
  const Flag hold = gate(s);
  device_.fill(s, {x, simd::Format::f16}, 256, 9);
  device_.copy_to_host(std::as_writable_bytes(std::span(host)), x, s);
  const Event done = mark(s);
  inside_notify = true;
  {
    // The engine calls with its mutex held, which its callbacks take: neither may wait for the
    // other.
    const std::scoped_lock guard(notes.mutex);
    device_.notify(done, notes.callback(1));
    open(hold);
  }
  inside_notify = false;
  notes.wait_for(1);
  EXPECT_EQ(notes.seen, std::vector<std::uint16_t>(256, 9));
  inside_notify = true;
  device_.notify(done, notes.callback(2));  // already reached: still not inside the call
  inside_notify = false;
  notes.wait_for(2);
  finish(s);
  const std::scoped_lock guard(notes.mutex);
  EXPECT_EQ(notes.came, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_FALSE(notes.inside);
}

TEST_P(BackendTest, NotifyMeansTheLastRecordBeforeTheCall) {
  const NativeStream a = stream("a");
  const NativeStream b = stream("b");
  Notes notes(device_.waiter());
  const Event event = mark(a);
  device_.notify(event, notes.callback(1));
  const Flag hold = gate(b);
  device_.record(event, b);
  device_.notify(event, notes.callback(2));
  notes.wait_for(1);
  finish(a);
  {
    const std::scoped_lock guard(notes.mutex);
    EXPECT_EQ(notes.came, (std::vector<std::uint64_t>{1}));
  }
  open(hold);
  notes.wait_for(2);
}

TEST_P(BackendTest, ManyNotificationsAllCome) {
  const NativeStream s = stream();
  Notes notes(device_.waiter());
  for (std::uint64_t i = 0; i < 500; ++i) {
    const Event event = mark(s);
    device_.notify(event, notes.callback(2 * i));
    device_.notify(event, notes.callback(2 * i + 1));
    if (i % 2 == 0) device_.destroy_event(event);  // what was asked for stays asked for
  }
  notes.wait_for(1000);
  const std::scoped_lock guard(notes.mutex);
  std::ranges::sort(notes.came);
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_EQ(notes.came[i], i);
}

TEST_P(BackendTest, NoCallbackRunsAfterItsStreamIsDestroyed) {
  for (int round = 0; round < 50; ++round) {
    const NativeStream s = device_.create_stream("short-lived");
    auto notes = std::make_unique<Notes>(device_.waiter());
    const Event event = mark(s);
    for (std::uint64_t i = 0; i < 4; ++i) device_.notify(event, notes->callback(i));
    device_.destroy_stream(s);
    EXPECT_EQ(notes->came.size(), 4u);
    notes.reset();
  }
}

INSTANTIATE_TEST_SUITE_P(Every, BackendTest, ::testing::ValuesIn(backend_flavours()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace outboard::testing
