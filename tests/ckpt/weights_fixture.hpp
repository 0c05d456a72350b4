// SPDX-License-Identifier: Apache-2.0
/// Checkpoints of made-up weights on the machine's own file system, for what exports and imports
/// them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/reader.hpp"
#include "ckpt/writer.hpp"
#include "core/mix64.hpp"
#include "optim/state_layout.hpp"
#include "outboard/interchange.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace outboard::testing {

/// Any bits of a float below 2.
inline float any_float(std::uint64_t seed) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(core::mix64(seed)) & 0xBFFFFFFFu);
}

using Weights = std::vector<std::pair<std::string, std::vector<float>>>;

/// Masters as given; moments are ones.
class WeightsState final : public ckpt::StateSource {
 public:
  explicit WeightsState(Weights weights) : weights_(std::move(weights)) {}
  void read(std::size_t parameter, std::size_t stream, Sink sink) override {
    std::vector<float> values = weights_[parameter].second;
    if (stream > 0) values.assign(values.size(), 1.0F);
    sink(std::as_bytes(std::span(values)));
  }
  [[nodiscard]] ckpt::SaveRequest request(std::map<std::string, std::string> entries) const {
    ckpt::Manifest manifest;
    manifest.written_by = "a test";
    manifest.counters = {.steps = 9, .applied = 9, .skipped = 0, .partial = 0};
    manifest.groups = {{AdamW{}, {}}};
    manifest.entries = std::move(entries);
    for (const auto& [name, values] : weights_) {
      ckpt::ParameterEntry& entry = manifest.parameters.emplace_back();
      entry.names = {name};
      entry.elems = values.size();
      for (const auto stream : optim::stream_names(manifest.groups[0])) {
        entry.streams.push_back({std::string(stream), 0, 0});
      }
    }
    return {manifest, 0, std::uint64_t{1} << 20, 1};
  }

 private:
  Weights weights_;
};

class WeightsTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }
  std::string save(const Weights& weights, std::map<std::string, std::string> entries = {},
                   const std::string& root = "run") {
    WeightsState state(weights);
    return ckpt::save(files, path(root), state.request(std::move(entries)), state).folder;
  }
  /// Of the newest checkpoint in a folder, checked.
  [[nodiscard]] Weights masters(const std::string& folder) const {
    const auto checkpoint = ckpt::Checkpoint::open(files, folder);
    checkpoint.verify();
    Weights out;
    for (std::size_t i = 0; i < checkpoint.manifest().parameters.size(); ++i) {
      const auto& entry = checkpoint.manifest().parameters[i];
      std::vector<float> values(entry.elems);
      checkpoint.read_range(i, 0, 0, values);
      out.emplace_back(entry.name(), values);
    }
    return out;
  }
  static std::string content(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const std::string& file, const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
  }
  static std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }

  ckpt::FileSystem& files = ckpt::posix_file_system();

 private:
  TemporaryFolder folder_;
};

/// Bit for bit; NaN and zeros too.
inline bool same_bits(const Weights& a, const Weights& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && std::ranges::equal(std::as_bytes(std::span(x.second)),
                                                    std::as_bytes(std::span(y.second)));
  });
}

}  // namespace outboard::testing
