// SPDX-License-Identifier: Apache-2.0
// Planned bytes against a run with 100 million parameters: what the process holds at most while it
// trains, what is pinned, what the device has handed out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "cli/plan_errors.hpp"
#include "cli/plan_request.hpp"
#include "outboard/outboard.hpp"

namespace outboard::cli {
namespace {

constexpr std::uint64_t kParameters = 100'000'000;
constexpr std::uint64_t kKiB = 1024;

struct Case {
  DType dtype = DType::f16;
  std::uint32_t sums = 0;  ///< micro-batches that the engine adds up
  std::uint32_t nodes = 1;
  bool clip = false;
  double device_fraction = 0.0;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const std::uint32_t sums : {0U, 2U}) {
      for (const std::uint32_t nodes : {1U, 2U}) {
        for (const bool clip : {false, true}) cases.push_back({dtype, sums, nodes, clip});
      }
    }
  }
  cases.push_back({DType::f16, 0, 2, true, 0.5});
  cases.push_back({DType::bf16, 2, 1, true, 0.5});
  return cases;
}

PlanRequest request_for(const Case& c) {
  PlanRequest request;
  request.shape = stand_in(kParameters);
  request.dtype = c.dtype;
  request.nodes = c.nodes;
  request.gradient_ring = false;
  request.activation_bytes = 0;
  request.device_fraction = c.device_fraction;
  if (c.sums == 0) return request;
  request.accumulate = Accumulate::host;
  request.micro_batches = c.sums;
  return request;
}

/// A line of /proc/self/status, in bytes.
std::uint64_t status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) * kKiB;
  }
  return 0;
}

/// The peak of resident memory is that from now on. @return false if the system has no such thing.
bool forget_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good() && status_bytes("VmHWM") > 0;
}

/// A trainer that only hands over gradients, each in a buffer of its own.
class Trainer {
 public:
  Trainer(const Case& c, const PlanRequest& request)
      : sums_(std::max(c.sums, 1U)),
        gpu_({.memory_bytes = std::size_t{2} << 30}),
        stream_(gpu_.create_stream("trainer")),
        engine_(gpu_.device(), config_of(c, request)) {
    const GroupId group = engine_.add_group(AdamW{});
    for (const Tensor& tensor : tensors_of(request.shape, request.context)) {
      void* weight = tensor_of(tensor.elems * dtype_bytes(c.dtype));
      gradients_.push_back(tensor_of(tensor.elems * dtype_bytes(c.dtype)));
      parameters_.push_back(engine_.add_parameter({.name = std::to_string(parameters_.size()),
                                                   .dtype = c.dtype,
                                                   .elems = tensor.elems,
                                                   .data = weight,
                                                   .group = group}));
    }
    gpu_.synchronize();
    engine_.commit();
  }

  void step() {
    for (std::uint32_t micro_batch = 0; micro_batch < sums_; ++micro_batch) {
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (given_ && micro_batch > 0) engine_.wait_gradient_taken(parameters_[i], stream_);
        engine_.wait(parameters_[i], stream_);
        engine_.gradient_ready(parameters_[i], gradients_[i], stream_);
        given_ = true;
      }
    }
    EXPECT_TRUE(engine_.step().applied());
    engine_.synchronize();
  }
  [[nodiscard]] MemoryLedger ledger() const { return engine_.ledger(); }
  [[nodiscard]] std::uint64_t device_bytes() const { return gpu_.memory().used_bytes; }

 private:
  static Config config_of(const Case& c, const PlanRequest& request) {
    Config config = cli::config_of(request);
    config.max_grad_norm = c.clip ? 1.0 : 0.0;
    config.host.synthetic_topology = "numa:" + std::to_string(c.nodes) + " core:1 pu:1";
    return config;
  }
  /// Small values, so that every page is there.
  void* tensor_of(std::uint64_t bytes) {
    void* address = gpu_.allocate(bytes);
    gpu_.launch(
        stream_, sim::Duration(0),
        [=](sim::KernelView& view) {
          for (std::uint16_t& value : view.as<std::uint16_t>(address, bytes / 2)) value = 0x2000;
        },
        "fill");
    return address;
  }

  std::uint32_t sums_;
  sim::Gpu gpu_;
  NativeStream stream_;
  Engine engine_;
  std::vector<ParameterId> parameters_;
  std::vector<void*> gradients_;
  bool given_ = false;
};

struct Use {
  std::uint64_t host = 0, pinned = 0, device = 0;
};

/// The software GPU's memory is the process's too, and all of what it has handed out is in use.
Use measured(const Case& c, const PlanRequest& request) {
  const std::uint64_t before = status_bytes("VmRSS");
  Trainer trainer(c, request);
  for (int i = 0; i < 2; ++i) trainer.step();
  const std::uint64_t device = trainer.device_bytes();
  const std::uint64_t rise = status_bytes("VmHWM") - before;
  return {rise - device, trainer.ledger().bytes(MemoryPlace::host_pinned), device};
}

TEST(PlanFullSize, TotalsAreWithinTenPercentAndHardlyEverUnder) {
  PlanErrors errors;
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(std::string(dtype_name(c.dtype)) + ", " + std::to_string(c.sums) + " sums, " +
                 std::to_string(c.nodes) + " nodes, clipping " + (c.clip ? "on" : "off") + ", " +
                 std::to_string(c.device_fraction) + " on the device");
    ASSERT_TRUE(forget_peak()) << "the system keeps no peak that can be forgotten";
    const PlanRequest request = request_for(c);
    const MemoryPlan plan = plan_bytes(request.shape, request);
    ASSERT_EQ(count_parameters(request.shape), kParameters);
    const Use real = measured(c, request);
    errors.compare("host", plan.host(), real.host);
    errors.compare("pinned", sum_of(plan.pinned), real.pinned);
    errors.compare("device", sum_of(plan.device), real.device);
  }
  errors.print(all_cases().size(), "runs");
}

}  // namespace
}  // namespace outboard::cli
