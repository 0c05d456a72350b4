// SPDX-License-Identifier: Apache-2.0
/// Least squares on the software GPU: finds the 64 weights that made the targets. The FP16 weights
/// and gradients are on the device; FP32 weights and Adam's moments are the engine's, on the host.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include "outboard/outboard.hpp"

using namespace outboard;

namespace {

using Half = std::uint16_t;
constexpr std::size_t kRows = 256, kCols = 64;

float feature(std::size_t row, std::size_t col) {
  return std::sin(0.7f * static_cast<float>(row * (col + 1) + col * col));
}
float target(std::size_t row) {
  float sum = 0.0f;
  for (std::size_t col = 0; col < kCols; ++col) {
    sum += feature(row, col) * std::cos(static_cast<float>(col));
  }
  return sum;
}

/// error = features * weight - target; the loss is the mean of its squares.
void forward(std::span<const Half> weight, std::span<float> error, std::span<float> loss) {
  loss[0] = 0.0f;
  for (std::size_t row = 0; row < kRows; ++row) {
    error[row] = -target(row);
    for (std::size_t col = 0; col < kCols; ++col) {
      error[row] += feature(row, col) * half_to_float(weight[col]);
    }
    loss[0] += error[row] * error[row] / kRows;
  }
}

/// gradient = the loss's, times `scale`, rounded to FP16 once.
void backward(std::span<const float> error, float scale, std::span<Half> gradient) {
  for (std::size_t col = 0; col < kCols; ++col) {
    float sum = 0.0f;
    for (std::size_t row = 0; row < kRows; ++row) sum += 2.0f * feature(row, col) * error[row];
    gradient[col] = half_from_float(scale * sum / kRows);
  }
}

void train() {
  sim::Gpu gpu({.memory_bytes = std::size_t{1} << 20});
  const NativeStream stream = gpu.create_stream("train");
  void* weight = gpu.allocate(kCols * sizeof(Half));
  void* gradient = gpu.allocate(kCols * sizeof(Half));
  void* error = gpu.allocate(kRows * sizeof(float));
  void* device_loss = gpu.allocate(sizeof(float));
  const std::vector<float> start(kCols, 0.0f);

  // 1. An engine for the device, a group of hyper-parameters, each parameter once, commit.
  Engine engine(gpu.device(), {.max_grad_norm = 10.0, .loss_scaling = {.initial_scale = 1024.0}});
  const GroupId group = engine.add_group({.lr = 0.05});
  const ParameterId w = engine.add_parameter(
      {.name = "w", .elems = kCols, .data = weight, .group = group, .master = start});
  engine.commit();

  for (int step = 1; step <= 200; ++step) {
    // 2. Before the forward pass reads a weight, the stream waits for its last update.
    engine.wait(w, stream);
    gpu.launch(stream, {}, [=](sim::KernelView& view) {
      forward(view.as<const Half>(weight, kCols), view.as<float>(error, kRows),
              view.as<float>(device_loss, 1));
    });
    float loss = 0.0f;
    gpu.copy_to_host(std::as_writable_bytes(std::span(&loss, 1)), device_loss, stream);

    // 3. Backward multiplies by the loss scale, and hands over each gradient once it is queued.
    const auto scale = static_cast<float>(engine.loss_scale());
    gpu.launch(stream, {}, [=](sim::KernelView& view) {
      backward(view.as<const float>(error, kRows), scale, view.as<Half>(gradient, kCols));
    });
    engine.gradient_ready(w, gradient, stream);

    // 4. Waits for the gradients, and so for the loss before them; decides on clipping and
    //    overflow; updates in the background.
    const StepResult result = engine.step();
    if (step == 1 || step % 20 == 0) {
      std::printf("step %3d  loss %9.6f  gradient norm %8.5f  %s\n", step,
                  static_cast<double>(loss), result.grad_norm,
                  result.applied() ? "applied" : "skipped");
    }
  }
  gpu.synchronize();  // nothing is queued any more when the engine and the memory go
}

}  // namespace

int main() {
  try {
    train();
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "outboard_minimal: %s\n", error.what());
    return exit_status(error.code());
  }
}
