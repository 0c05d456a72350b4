// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "conformance/backends.hpp"
#include "outboard/sim.hpp"

namespace outboard::testing {
namespace {

BackendFlavour flavour(std::string name, const sim::Options& options) {
  return {std::move(name), [options] { return Device::sim(options).backend(); }, false};
}

}  // namespace

std::vector<BackendFlavour> sim_flavours() {
  using namespace std::chrono_literals;
  constexpr std::size_t kMemory = std::size_t{16} << 20;
  std::vector<BackendFlavour> all;
  sim::Options threads;
  threads.memory_bytes = kMemory;
  all.push_back(flavour("threads", threads));
  sim::Options timed = threads;
  timed.rates.link_down_bytes_per_s = 4e9;
  timed.rates.link_up_bytes_per_s = 4e9;
  timed.rates.device_bytes_per_s = 40e9;
  all.push_back(flavour("threads_with_rates", timed));
  sim::Options instant = threads;
  instant.mode = sim::Mode::virtual_time;
  all.push_back(flavour("virtual_instant", instant));
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    sim::Options delayed = timed;
    delayed.mode = sim::Mode::virtual_time;
    delayed.seed = seed;
    delayed.max_random_delay = 50us;
    all.push_back(flavour("virtual_seed_" + std::to_string(seed), delayed));
  }
  return all;
}

std::vector<BackendFlavour> backend_flavours() {
  std::vector<BackendFlavour> all = sim_flavours();
  for (BackendFlavour& flavour : cuda_flavours()) all.push_back(std::move(flavour));
  return all;
}

}  // namespace outboard::testing
