// SPDX-License-Identifier: Apache-2.0
// One step of one parameter through the installed library, against the formula by hand.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include "outboard/outboard.hpp"
#include "outboard/version.hpp"

namespace {

constexpr std::size_t kElems = 1000;

float master_after_one_step() {
  outboard::sim::Gpu gpu({.mode = outboard::sim::Mode::virtual_time});
  const auto stream = gpu.create_stream();
  auto* weight = gpu.allocate(kElems * sizeof(std::uint16_t));
  auto* gradient = gpu.allocate(kElems * sizeof(std::uint16_t));
  gpu.launch(stream, {}, [=](outboard::sim::KernelView& view) {
    for (auto& half : view.as<std::uint16_t>(weight, kElems)) half = 0x3C00;    // 1.0
    for (auto& half : view.as<std::uint16_t>(gradient, kElems)) half = 0x3800;  // 0.5
  });
  gpu.synchronize(stream);  // commit() reads the weights, and knows no stream to read them behind

  outboard::Config config;
  config.loss_scaling = {.dynamic = false, .initial_scale = 1.0};
  outboard::Engine engine(gpu.device(), config);
  const auto group = engine.add_group({.lr = 0.1, .weight_decay = 0.5});
  const auto parameter =
      engine.add_parameter({.name = "w", .elems = kElems, .data = weight, .group = group});
  engine.commit();
  engine.wait(parameter, stream);
  engine.gradient_ready(parameter, gradient, stream);
  engine.step();
  std::vector<float> master(kElems);
  engine.read_state(parameter, {.master = master});
  return master.back();
}

}  // namespace

int main() {
  try {
    const float master = master_after_one_step();
    std::printf("outboard %s: master %.7f\n", outboard::kVersion, static_cast<double>(master));
    // 1 - 0.1*0.5*1 - 0.1*(0.5/0.5)
    return std::abs(master - 0.85F) < 1e-6F ? 0 : 1;
  } catch (const outboard::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
