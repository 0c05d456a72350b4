// SPDX-License-Identifier: Apache-2.0
/// Which state of a checkpoint goes to which parameter of an engine, and what does not fit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/manifest.hpp"
#include "optim/group.hpp"
#include "outboard/config.hpp"
#include "outboard/types.hpp"

namespace outboard::engine {

/// A parameter of the engine.
struct ModelParameter {
  std::vector<std::string> names;  ///< its own first, then those of tied weights
  DType dtype = DType::f16;
  std::uint64_t elems = 0;
  std::uint32_t group = 0;
};

struct Model {
  std::vector<ModelParameter> parameters;  ///< by id
  std::span<const optim::Group> groups;    ///< by id
  LossScaling loss_scaling;
  double max_grad_norm = 0.0;
  std::uint32_t accumulation = 1;
  Accumulate accumulate = Accumulate::trainer;
};

/// Without parameters.
[[nodiscard]] Model model_of(std::span<const optim::Group> groups, const Config& config);
/// What of these a checkpoint keeps. @return settings of which equal ones go on alike.
[[nodiscard]] ckpt::Settings settings_of(const Model& model);

/// Where one of a parameter's own streams comes from: the checkpoint's stream, or a constant.
struct StreamOrigin {
  std::optional<std::size_t> stream;
  float constant = 0.0F;
};

struct ParameterMatch {
  std::size_t entry = 0;              ///< index into the manifest's parameters
  bool begins_anew = false;           ///< only its master is loaded: the step count becomes 0
  std::vector<StreamOrigin> streams;  ///< in the order of the parameter's own
};

struct Match {
  std::vector<std::optional<ParameterMatch>> parameters;  ///< by id
  std::vector<std::optional<Rule>> rules;  ///< by group: the hyper-parameters to take
  bool loss_scale = true;                  ///< whether the checkpoint's fits
  bool same_model = false;                 ///< same parameters in the same order, all of it fits
  std::vector<std::string> missing, extra, differences;
};

/// @throws Error{bad_checkpoint} where no mode can go on: a parameter of another size, two names of
/// one parameter that were two.
[[nodiscard]] Match match(const Model& model, const ckpt::Manifest& manifest);
/// Of what does not fit, if there is any, each kind with its first names.
/// @throws Error{bad_checkpoint}
void require_all(const Match& match, const std::string& folder);

}  // namespace outboard::engine
