// SPDX-License-Identifier: Apache-2.0
/// A small state whose elements are a formula of (version, parameter, stream, element), and what
/// reads a checkpoint of it back and says which version it is.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/reader.hpp"
#include "ckpt/writer.hpp"
#include "core/mix64.hpp"
#include "optim/state_layout.hpp"

namespace outboard::testing {

class SmallState final : public ckpt::StateSource {
 public:
  explicit SmallState(std::uint32_t version) : version_(version) {
    groups = {{AdamW{.lr = 3e-4 * version, .weight_decay = 0.1}, {.ema_decay = 0.99}},
              {Sgd{.lr = 0.1}, {.rounding = Rounding::stochastic, .seed = 0xFEDCBA9876543210u}}};
    parameters = {{{"wte", "head"}, DType::f16, 600, 0, 5, {}},
                  {{"b\u00e9ta \"quoted\""}, DType::bf16, 7, 1, 4, {}},
                  {{"none"}, DType::f32, 0, 0, 0, {}}};
  }

  [[nodiscard]] ckpt::Manifest manifest() const {
    ckpt::Manifest manifest;
    manifest.written_by = "a test";
    manifest.digest = 0x0123456789ABCDEFu + version_;
    manifest.counters = {.steps = version_, .applied = 3, .skipped = 1, .partial = 0};
    manifest.accumulation = 3;
    manifest.dynamic_loss_scale = true;
    manifest.loss_scale = {.scale = 1024.0,
                           .scale_before_row = 2048.0,
                           .clean_steps = 2,
                           .overflows_in_a_row = 0,
                           .halvings_in_row = 1};
    manifest.groups = groups;
    manifest.parameters = parameters;
    for (ckpt::ParameterEntry& parameter : manifest.parameters) {
      for (const auto name : optim::stream_names(groups[parameter.group])) {
        parameter.streams.push_back({std::string(name), 0, 0});
      }
    }
    manifest.entries = {{"bytes", std::string("\xFF\x00\x01", 3)}, {"data order", "seed 7"}};
    return manifest;
  }
  [[nodiscard]] ckpt::SaveRequest request(std::uint32_t keep_last = 1) const {
    return {manifest(), keep_last, 5000, 1};
  }

  [[nodiscard]] static float element(std::uint32_t version, std::size_t parameter,
                                     std::size_t stream, std::uint64_t index) {
    const std::uint64_t key = (std::uint64_t{version} << 40) + (parameter << 32) + (stream << 24);
    return std::bit_cast<float>(static_cast<std::uint32_t>(core::mix64(key + index)) & 0xBFFFFFFFu);
  }
  [[nodiscard]] std::vector<float> elements(std::size_t parameter, std::size_t stream) const {
    std::vector<float> out(parameters[parameter].elems);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = element(version_, parameter, stream, i);
    return out;
  }
  void read(std::size_t parameter, std::size_t stream, Sink sink) override {
    const std::vector<float> all = elements(parameter, stream);
    const auto bytes = std::as_bytes(std::span(all));
    sink(bytes.first(bytes.size() / 3));
    sink(bytes.subspan(bytes.size() / 3));
  }

  std::vector<optim::Group> groups;
  std::vector<ckpt::ParameterEntry> parameters;

 private:
  std::uint32_t version_;
};

/// Reads every byte of the newest checkpoint. @return its version; the caller's failure if an
/// element is not that version's. @throws as the reader does.
inline std::uint32_t read_version(ckpt::FileSystem& files, const std::string& root) {
  const ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(files, root);
  const auto version = static_cast<std::uint32_t>(checkpoint.manifest().counters.steps);
  const SmallState expected(version);
  EXPECT_EQ(checkpoint.manifest().digest, expected.manifest().digest);
  const auto& parameters = checkpoint.manifest().parameters;
  EXPECT_EQ(parameters.size(), expected.parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (std::size_t k = 0; k < parameters[i].streams.size(); ++k) {
      std::vector<float> read(parameters[i].elems);
      auto stream = checkpoint.stream(i, k);
      const auto bytes = std::as_writable_bytes(std::span(read));
      stream.read(bytes.first(bytes.size() / 2));
      stream.read(bytes.subspan(bytes.size() / 2));
      stream.finish();
      const std::vector<float> all = expected.elements(i, k);
      EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(read)), std::as_bytes(std::span(all))))
          << parameters[i].name() << " stream " << k;
    }
  }
  return version;
}

}  // namespace outboard::testing
