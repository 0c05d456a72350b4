// SPDX-License-Identifier: Apache-2.0
/// save() and load() of an engine: between its pipeline and the files.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/file_system.hpp"
#include "ckpt/writer.hpp"
#include "engine/checkpoint_match.hpp"
#include "outboard/checkpoint.hpp"
#include "pipeline/step.hpp"

namespace outboard::engine {

/// What a save writes of the engine as it is now, without digest. Waits for nothing.
/// @throws Error{invalid_config} for an option.
[[nodiscard]] ckpt::SaveRequest request_of(const Model& model, pipeline::Pipeline& pipeline,
                                           const SaveOptions& options);
/// Bytes of that. Waits for nothing.
[[nodiscard]] std::uint64_t checkpoint_bytes(const Model& model, pipeline::Pipeline& pipeline,
                                             const SaveOptions& options);
void check_save(ckpt::FileSystem& files, const std::string& folder, const Model& model,
                pipeline::Pipeline& pipeline, const SaveOptions& options);

SaveReport save(ckpt::FileSystem& files, const std::string& folder, const Model& model,
                pipeline::Pipeline& pipeline, const SaveOptions& options);

/// What a load needs of the engine that it loads into.
struct LoadTarget {
  Model model;
  std::span<optim::Group> groups;  ///< the model's: their rules are replaced
  /// The pipeline to load into, sound and idle. Called once the checkpoint is known to fit;
  /// `complete`: it has the state of every parameter.
  std::function<pipeline::Pipeline&(bool complete)> prepare;
};
LoadReport load(ckpt::FileSystem& files, const std::string& folder, const LoadTarget& target,
                const LoadOptions& options);
/// A line for each thing of a report that did not fit.
[[nodiscard]] std::vector<std::string> misfits(const LoadReport& report);

}  // namespace outboard::engine
