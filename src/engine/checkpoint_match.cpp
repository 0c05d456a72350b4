// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint_match.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "optim/rule_scalars.hpp"
#include "optim/state_layout.hpp"
#include "outboard/error.hpp"

namespace outboard::engine {
namespace {

std::string quoted(const std::string& name) {
  return "parameter '" + name + "'";
}

class Matching {
 public:
  Matching(const Model& model, const ckpt::Manifest& manifest)
      : model_(model), manifest_(manifest) {}

  Match run() {
    find_entries();
    for (std::uint32_t i = 0; i < model_.parameters.size(); ++i) {
      if (found_.parameters[i]) fit(i, *found_.parameters[i]);
    }
    match_rules();
    match_loss_scale();
    found_.same_model = same_model();
    match_settings();
    return std::move(found_);
  }

 private:
  [[nodiscard]] const ckpt::ParameterEntry& entry_of(const ParameterMatch& match) const {
    return manifest_.parameters[match.entry];
  }

  void find_entries() {
    std::map<std::string, std::size_t> by_name;
    for (std::size_t i = 0; i < manifest_.parameters.size(); ++i) {
      for (const std::string& name : manifest_.parameters[i].names) by_name[name] = i;
    }
    std::map<std::size_t, std::uint32_t> taken;
    for (std::uint32_t i = 0; i < model_.parameters.size(); ++i) {
      const auto entry = entry_named(model_.parameters[i], by_name);
      auto& match = found_.parameters.emplace_back();
      if (!entry) {
        found_.missing.push_back(model_.parameters[i].names.front());
        continue;
      }
      if (const auto [at, first] = taken.emplace(*entry, i); !first) {
        refuse(model_.parameters[i], "and '" + model_.parameters[at->second].names.front() +
                                         "' are two and were one when the checkpoint was saved");
      }
      match.emplace().entry = *entry;
    }
    for (std::size_t i = 0; i < manifest_.parameters.size(); ++i) {
      if (!taken.contains(i)) found_.extra.push_back(manifest_.parameters[i].name());
    }
  }

  static std::optional<std::size_t> entry_named(const ModelParameter& parameter,
                                                const std::map<std::string, std::size_t>& by_name) {
    std::optional<std::size_t> entry;
    for (const std::string& name : parameter.names) {
      const auto found = by_name.find(name);
      if (found == by_name.end()) continue;
      if (entry && *entry != found->second) {
        refuse(parameter, "is also called '" + name +
                              "', which was another one when the checkpoint was saved");
      }
      entry = found->second;
    }
    return entry;
  }

  [[noreturn]] static void refuse(const ModelParameter& parameter, const std::string& why) {
    throw Error(ErrorCode::bad_checkpoint,
                "load(): " + quoted(parameter.names.front()) + " " + why);
  }

  /// What of the entry goes where.
  void fit(std::uint32_t index, ParameterMatch& match) {
    const ModelParameter& parameter = model_.parameters[index];
    const ckpt::ParameterEntry& entry = entry_of(match);
    if (entry.elems != parameter.elems) {
      refuse(parameter, "has " + std::to_string(parameter.elems) +
                            " elements and the checkpoint has " + std::to_string(entry.elems) +
                            " of it; load it into the model that it was saved from");
    }
    if (entry.dtype != parameter.dtype) {
      differ(parameter, std::string("is ") + dtype_name(parameter.dtype) + " and was " +
                            dtype_name(entry.dtype));
    }
    const optim::Group& own = model_.groups[parameter.group];
    const optim::Group& saved = manifest_.groups[entry.group];
    const std::string why = optim::refusal_to_replace(saved.rule, own.rule);
    match.begins_anew = !why.empty();
    if (match.begins_anew) {
      differ(parameter, "is updated by " + std::string(rule_name(own.rule)) +
                            " now, and its group " + why + "; only its master is loaded");
    } else if (own.options != saved.options) {
      differ(parameter,
             "is in a group with other rounding, seed or ema_decay than when it was saved");
    } else if (own.options.rounding == Rounding::stochastic && match.entry != index) {
      differ(parameter, "is parameter " + std::to_string(index) + " here and was " +
                            std::to_string(match.entry) +
                            " when it was saved, on which the bits of its stochastic rounding "
                            "depend; add the parameters in the order of then");
    }
    find_streams(own, entry, match);
  }

  static void find_streams(const optim::Group& own, const ckpt::ParameterEntry& entry,
                           ParameterMatch& match) {
    const auto names = optim::stream_names(own);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto same = std::ranges::find(entry.streams, names[i], &ckpt::StreamEntry::name);
      const bool rules_own = i > 0 && names[i] != "ema";
      StreamOrigin& origin = match.streams.emplace_back();
      if (same != entry.streams.end() && !(rules_own && match.begins_anew)) {
        origin.stream = static_cast<std::size_t>(same - entry.streams.begin());
      } else if (!rules_own) {
        origin.stream = 0;  // an average begins as the master
      } else {
        origin.constant = i == 1 ? optim::initial_state(own.rule) : 0.0F;
      }
    }
  }

  void match_rules() {
    found_.rules.resize(model_.groups.size());
    if (manifest_.imported) return;
    std::set<std::uint32_t> told;
    for (std::uint32_t i = 0; i < model_.parameters.size(); ++i) {
      const auto& match = found_.parameters[i];
      if (!match || match->begins_anew) continue;
      const std::uint32_t group = model_.parameters[i].group;
      const Rule& rule = manifest_.groups[entry_of(*match).group].rule;
      auto& taken = found_.rules[group];
      if (taken && *taken != rule && told.insert(group).second) {
        found_.differences.push_back("group " + std::to_string(group) +
                                     " has parameters that were in groups of different "
                                     "hyper-parameters; its first parameter's are taken");
      }
      if (!taken) taken = rule;
    }
  }

  void match_loss_scale() {
    const LossScaling& own = model_.loss_scaling;
    const double saved = manifest_.loss_scale.scale;
    const bool fits = own.dynamic == manifest_.dynamic_loss_scale &&
                      (own.dynamic ? saved >= own.min_scale && saved <= own.max_scale
                                   : saved == own.initial_scale);
    found_.loss_scale = fits;
    if (fits) return;
    found_.differences.push_back(
        std::string("the loss scale was ") + (manifest_.dynamic_loss_scale ? "dynamic" : "static") +
        ", " + std::to_string(saved) + ", which Config::loss_scaling does not allow");
  }

  /// None of these is loaded.
  void match_settings() {
    const auto number = [&](const char* name, const auto& own, const auto& saved) {
      if (own == saved) return;
      found_.differences.push_back(std::string(name) + " is " + shown(own) + " and was " +
                                   shown(saved) + " when the checkpoint was saved");
    };
    if (!manifest_.settings) return;
    number("Config::accumulation", model_.accumulation, manifest_.accumulation);
    const ckpt::Settings own = settings_of(model_);
    const ckpt::Settings& saved = *manifest_.settings;
    if (model_.accumulation == manifest_.accumulation) {
      number("Config::accumulate", own.accumulate, saved.accumulate);
    }
    number("Config::max_grad_norm", own.max_grad_norm, saved.max_grad_norm);
    if (!model_.loss_scaling.dynamic || !manifest_.dynamic_loss_scale) return;
    number("LossScaling::growth_interval", own.growth_interval, saved.growth_interval);
    number("LossScaling::min_scale", own.min_scale, saved.min_scale);
    number("LossScaling::max_scale", own.max_scale, saved.max_scale);
  }

  static std::string shown(std::uint32_t value) { return std::to_string(value); }
  static std::string shown(double value) {
    std::ostringstream text;
    text.precision(17);
    text << value;
    return text.str();
  }
  static std::string shown(Accumulate who) {
    return who == Accumulate::host ? "Accumulate::host" : "Accumulate::trainer";
  }

  [[nodiscard]] bool same_model() const {
    if (!found_.missing.empty() || !found_.extra.empty() || !found_.differences.empty()) {
      return false;
    }
    for (std::size_t i = 0; i < found_.parameters.size(); ++i) {
      if (found_.parameters[i]->entry != i) return false;
    }
    return true;
  }

  void differ(const ModelParameter& parameter, const std::string& how) {
    found_.differences.push_back(quoted(parameter.names.front()) + " " + how);
  }

  const Model& model_;
  const ckpt::Manifest& manifest_;
  Match found_;
};

std::string first_of(const std::vector<std::string>& items, const char* mark) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(items.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + (mark + items[i]) + mark;
  }
  if (items.size() > kShown) text += " and " + std::to_string(items.size() - kShown) + " more";
  return text;
}

}  // namespace

Model model_of(std::span<const optim::Group> groups, const Config& config) {
  return {.parameters = {},
          .groups = groups,
          .loss_scaling = config.loss_scaling,
          .max_grad_norm = config.max_grad_norm,
          .accumulation = config.accumulation,
          .accumulate = config.accumulate};
}

ckpt::Settings settings_of(const Model& model) {
  const LossScaling& scaling = model.loss_scaling;
  return {.max_grad_norm = std::isfinite(model.max_grad_norm) ? model.max_grad_norm : 0.0,
          .accumulate = model.accumulation > 1 ? model.accumulate : Accumulate::trainer,
          .growth_interval = scaling.growth_interval,
          .min_scale = scaling.min_scale,
          .max_scale = scaling.max_scale};
}

Match match(const Model& model, const ckpt::Manifest& manifest) {
  return Matching(model, manifest).run();
}

void require_all(const Match& match, const std::string& folder) {
  std::string text;
  if (!match.missing.empty()) {
    text += "; it has no state of " + std::to_string(match.missing.size()) +
            " parameters of the engine: " + first_of(match.missing, "'");
  }
  if (!match.extra.empty()) {
    text += "; it has state of " + std::to_string(match.extra.size()) +
            " parameters that the engine has not: " + first_of(match.extra, "'");
  }
  if (!match.differences.empty()) text += "; " + first_of(match.differences, "");
  if (text.empty()) return;
  throw Error(ErrorCode::bad_checkpoint,
              "load(): the checkpoint '" + folder + "' does not fit this engine" + text +
                  ". Register and set what was registered and set when it was saved, or set "
                  "LoadOptions::strict = false to load what fits");
}

}  // namespace outboard::engine
