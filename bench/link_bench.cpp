// SPDX-License-Identifier: Apache-2.0
// How fast copies across the link of NVIDIA's GPU 0 are: each way alone, and both at once. Prints
// one JSON object. Exit code 3: there is no GPU, and why.
//   link_bench [MEBIBYTES]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "device/backend.hpp"
#include "outboard/outboard.hpp"

namespace {

using outboard::NativeStream;
namespace device = outboard::device;

constexpr int kRepeats = 5;
constexpr std::size_t kPage = 4096;

/// Page-aligned, pinned host memory.
class Pinned {
 public:
  Pinned(device::Backend& backend, std::size_t bytes)
      : backend_(backend),
        memory_(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes)), bytes) {
    std::fill(memory_.begin(), memory_.end(), std::byte{1});
    pinned_ = backend.register_host(memory_);
  }
  ~Pinned() {
    if (pinned_) backend_.unregister_host(memory_);
    std::free(memory_.data());
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }
  [[nodiscard]] bool pinned() const { return pinned_; }

 private:
  device::Backend& backend_;
  std::span<std::byte> memory_;
  bool pinned_ = false;
};

struct Link {
  device::Backend& backend;
  Pinned from_host, to_host;
  void *up, *down;
  NativeStream up_stream, down_stream;

  Link(device::Backend& on, std::size_t bytes)
      : backend(on),
        from_host(on, bytes),
        to_host(on, bytes),
        up(on.allocate(bytes)),
        down(on.allocate(bytes)),
        up_stream(on.create_stream("up")),
        down_stream(on.create_stream("down")) {}
  ~Link() {
    backend.destroy_stream(up_stream);
    backend.destroy_stream(down_stream);
    backend.release(up);
    backend.release(down);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// GB/s of what went each way, by the device's clock; best of some.
  double measure(bool upward, bool downward) {
    double best = 0.0;
    for (int i = 0; i < kRepeats; ++i) best = std::max(best, measure_once(upward, downward));
    return best;
  }

 private:
  double measure_once(bool upward, bool downward) {
    const std::size_t bytes = from_host.memory().size();
    const device::Event start = backend.create_timed_event();
    const device::Event up_done = backend.create_timed_event();
    const device::Event down_done = backend.create_timed_event();
    backend.record(start, up_stream);
    backend.wait_event(down_stream, start);
    if (upward) backend.copy_to_device(up, from_host.memory(), up_stream);
    if (downward) backend.copy_to_host(to_host.memory(), down, down_stream);
    backend.record(up_done, up_stream);
    backend.record(down_done, down_stream);
    backend.synchronize(up_done, "link_bench");
    backend.synchronize(down_done, "link_bench");
    const double us =
        std::max(backend.elapsed_us(start, up_done), backend.elapsed_us(start, down_done));
    for (const device::Event event : {start, up_done, down_done}) backend.destroy_event(event);
    const double ways = (upward ? 1.0 : 0.0) + (downward ? 1.0 : 0.0);
    return us > 0.0 ? ways * static_cast<double>(bytes) / us * 1e-3 : 0.0;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::size_t mebibytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 256;
  try {
    const outboard::Device gpu = outboard::Device::cuda(0);
    device::Backend& backend = *gpu.backend();
    Link link(backend, std::max<std::size_t>(mebibytes, 1) << 20);
    const bool pinned = link.from_host.pinned() && link.to_host.pinned();
    const std::string& why = backend.why_no_kernels();
    std::printf(
        "{\"device\": \"%s\", \"memory_bytes\": %zu, \"kernels\": %s, \"stream_memory_ops\": %s, "
        "\"pinned\": %s, \"mebibytes\": %zu, \"up_gb_per_s\": %.2f, \"down_gb_per_s\": %.2f, "
        "\"both_gb_per_s\": %.2f}\n",
        std::string(gpu.name()).c_str(), backend.memory().limit_bytes,
        why.empty() ? "true" : "false", backend.stream_memory_ops() ? "true" : "false",
        pinned ? "true" : "false", mebibytes, link.measure(true, false), link.measure(false, true),
        link.measure(true, true));
    return 0;
  } catch (const outboard::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.code() == outboard::ErrorCode::unsupported ? 3 : 1;
  }
}
