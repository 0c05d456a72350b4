// SPDX-License-Identifier: Apache-2.0
// The CUDA device on the stand-in for its driver.
#include <chrono>

#include "conformance/backends.hpp"
#include "device/cuda/cuda_backend.hpp"
#include "fake_cuda/fake_cuda.hpp"

namespace outboard::testing {
namespace {

BackendFlavour flavour(std::string name, const sim::Options& options) {
  const auto make = [options]() -> std::shared_ptr<device::Backend> {
    if (fake_cuda::live().contexts == 0) fake_cuda::start({.devices = 2, .device = options});
    const auto ordinal = static_cast<int>(fake_cuda::live().contexts);
    return std::make_shared<device::cuda::CudaBackend>(
        ordinal, device::cuda::Clock{.loop = fake_cuda::loop_of(ordinal)});
  };
  return {std::move(name), make, true};
}

}  // namespace

std::vector<BackendFlavour> cuda_flavours() {
  using namespace std::chrono_literals;
  sim::Options threads;
  threads.memory_bytes = std::size_t{16} << 20;
  std::vector<BackendFlavour> all;
  all.push_back(flavour("cuda_threads", threads));
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    sim::Options delayed = threads;
    delayed.mode = sim::Mode::virtual_time;
    delayed.rates.link_down_bytes_per_s = 4e9;
    delayed.rates.link_up_bytes_per_s = 4e9;
    delayed.seed = seed;
    delayed.max_random_delay = 50us;
    all.push_back(flavour("cuda_virtual_seed_" + std::to_string(seed), delayed));
  }
  return all;
}

}  // namespace outboard::testing
