// SPDX-License-Identifier: Apache-2.0
/// Everything of a checkpoint but the tensors' elements. docs/checkpoint_format.md describes the
/// file it is kept in.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "optim/group.hpp"
#include "optim/loss_scaler.hpp"
#include "outboard/config.hpp"
#include "outboard/types.hpp"

namespace outboard::ckpt {

/// One FP32 stream of a parameter's state: the tensor "<stream>/<parameter>" of a file.
struct StreamEntry {
  std::string name;            ///< "master", "exp_avg", ...
  std::uint32_t file = 0;      ///< index into Manifest::files
  std::uint64_t checksum = 0;  ///< of the tensor's bytes
};

struct ParameterEntry {
  std::vector<std::string> names;  ///< the first is its own; the others of tied weights
  DType dtype = DType::f16;
  std::uint64_t elems = 0;
  std::uint32_t group = 0;  ///< index into Manifest::groups
  std::uint64_t step_count = 0;
  std::vector<StreamEntry> streams;

  [[nodiscard]] const std::string& name() const { return names.front(); }
};

struct FileEntry {
  std::string name;  ///< in the checkpoint's folder
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;         ///< of the whole file
  std::uint64_t header_checksum = 0;  ///< of what comes before the tensors
};

struct Counters {
  std::uint64_t steps = 0, applied = 0, skipped = 0, partial = 0;
};

/// Settings of the engine that saved which are no state and decide on how it would have gone on.
struct Settings {
  double max_grad_norm = 0.0;  ///< 0: off
  Accumulate accumulate = Accumulate::trainer;
  // Of dynamic loss scaling:
  std::uint32_t growth_interval = 0;
  double min_scale = 0.0, max_scale = 0.0;
  bool operator==(const Settings&) const = default;
};

struct Manifest {
  std::string written_by;
  std::uint64_t digest = 0;  ///< Engine::state_digest() when it was saved
  Counters counters;
  std::uint32_t accumulation = 1;
  bool dynamic_loss_scale = false;
  optim::LossScaler::State loss_scale;
  bool imported = false;  ///< weights from elsewhere: the groups' hyper-parameters are nobody's
  std::optional<Settings> settings;  ///< none: it was saved by a release that kept none
  std::vector<optim::Group> groups;
  std::vector<ParameterEntry> parameters;  ///< in registration order
  std::vector<FileEntry> files;
  std::map<std::string, std::string> entries;  ///< the trainer's own, any bytes
};

/// "exp_avg/layer0.weight".
[[nodiscard]] std::string tensor_name(std::string_view stream, std::string_view parameter);

[[nodiscard]] bool is_utf8(const std::string& text);
/// @throws Error{invalid_argument} naming a parameter or a key of an entry that is not UTF-8.
void require_utf8(const Manifest& manifest);
/// The manifest's file, checksum included.
/// @throws Error{invalid_argument} naming a parameter or a key that is not UTF-8.
[[nodiscard]] std::string write_manifest(const Manifest& manifest);
/// `file`: its path, for messages.
/// @throws Error{bad_checkpoint} naming the place of what is wrong; Error{unsupported} for a later
/// version of the format.
[[nodiscard]] Manifest read_manifest(std::string_view text, const std::string& file);

}  // namespace outboard::ckpt
