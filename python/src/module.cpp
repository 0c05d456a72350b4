// SPDX-License-Identifier: Apache-2.0
// The native half of the package: engines and settings. Names, checks of arrays and frameworks are
// Python's.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "host_engine.hpp"
#include "outboard/version.hpp"
#include "reports.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace outboard::python {
namespace {

using Released = nb::call_guard<nb::gil_scoped_release>;

const char* code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::invalid_config:
      return "invalid_config";
    case ErrorCode::protocol_error:
      return "protocol_error";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::device_failure:
      return "device_failure";
    case ErrorCode::deadlock:
      return "deadlock";
    case ErrorCode::poisoned:
      return "poisoned";
    case ErrorCode::numerics:
      return "numerics";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::io_failure:
      return "io_failure";
    case ErrorCode::no_space:
      return "no_space";
    case ErrorCode::bad_checkpoint:
      break;
  }
  return "bad_checkpoint";
}

void translate(const std::exception_ptr& pending, void*) {
  try {
    std::rethrow_exception(pending);
  } catch (const Error& error) {
    const nb::object type =
        nb::module_::import_("outboard.errors").attr("of_code")(code_name(error.code()));
    PyErr_SetString(type.ptr(), error.what());
  }
}

double number(const nb::dict& values, const char* name) {
  return nb::cast<double>(values[name]);
}

/// `values` has every hyper-parameter of the rule.
Rule make_rule(const std::string& kind, const nb::dict& values) {
  const auto get = [&values](const char* name) { return number(values, name); };
  if (kind == "Sgd") {
    return Sgd{get("lr"), get("momentum"), get("dampening"), nb::cast<bool>(values["nesterov"]),
               get("weight_decay")};
  }
  if (kind == "Lion") return Lion{get("lr"), get("beta1"), get("beta2"), get("weight_decay")};
  if (kind == "Adagrad") {
    return Adagrad{get("lr"), get("lr_decay"), get("initial_accumulator"), get("eps"),
                   get("weight_decay")};
  }
  const auto adam_like = [&]<class One>(One) {
    return One{get("lr"), get("beta1"), get("beta2"), get("eps"), get("weight_decay")};
  };
  if (kind == "Adam") return adam_like(Adam{});
  if (kind == "Lamb") return adam_like(Lamb{});
  if (kind == "AdamW") return adam_like(AdamW{});
  throw Error(ErrorCode::invalid_argument, "'" + kind +
                                               "' is no rule; there are AdamW, Adam, Sgd, Lion, "
                                               "Adagrad and Lamb");
}

/// The engine calls it without the interpreter's lock, and so does what destroys it.
LogSink sink_of(const nb::object& callable) {
  if (callable.is_none()) return {};
  const std::shared_ptr<nb::object> kept(new nb::object(callable), [](nb::object* one) {
    const nb::gil_scoped_acquire held;
    delete one;
  });
  return [kept](LogLevel level, std::string_view line) {
    const nb::gil_scoped_acquire held;
    try {
      (*kept)(static_cast<int>(level), nb::str(line.data(), line.size()));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a log sink of outboard");
    }
  };
}

void bind_settings(nb::module_& module) {
  nb::enum_<DType>(module, "DType")
      .value("f16", DType::f16)
      .value("bf16", DType::bf16)
      .value("f32", DType::f32);
  nb::enum_<Schedule>(module, "Schedule")
      .value("exact", Schedule::exact)
      .value("blocking", Schedule::blocking)
      .value("open", Schedule::open)
      .value("serial", Schedule::serial);
  nb::enum_<Accumulate>(module, "Accumulate")
      .value("trainer", Accumulate::trainer)
      .value("host", Accumulate::host);
  nb::enum_<Placement>(module, "Placement")
      .value("host", Placement::host)
      .value("device_resident", Placement::device_resident)
      .value("fraction", Placement::fraction)
      .value("automatic", Placement::automatic)
      .value("device_streamed", Placement::device_streamed);
  nb::enum_<Rounding>(module, "Rounding")
      .value("nearest", Rounding::nearest)
      .value("stochastic", Rounding::stochastic);
  nb::class_<LossScaling>(module, "LossScaling")
      .def(nb::init<>())
      .def_rw("dynamic", &LossScaling::dynamic)
      .def_rw("initial_scale", &LossScaling::initial_scale)
      .def_rw("growth_interval", &LossScaling::growth_interval)
      .def_rw("min_scale", &LossScaling::min_scale)
      .def_rw("max_scale", &LossScaling::max_scale)
      .def_rw("give_up_after", &LossScaling::give_up_after);
  nb::class_<HostOptions>(module, "HostOptions")
      .def(nb::init<>())
      .def_rw("synthetic_topology", &HostOptions::synthetic_topology)
      .def_rw("threads_per_node", &HostOptions::threads_per_node)
      .def_rw("reserve_cores", &HostOptions::reserve_cores);
  nb::class_<Config>(module, "Config")
      .def(nb::init<>())
      .def_rw("max_grad_norm", &Config::max_grad_norm)
      .def_rw("loss_scaling", &Config::loss_scaling)
      .def_rw("accumulation", &Config::accumulation)
      .def_rw("accumulate", &Config::accumulate)
      .def_rw("schedule", &Config::schedule)
      .def_rw("placement", &Config::placement)
      .def_rw("device_fraction", &Config::device_fraction)
      .def_rw("device_budget_bytes", &Config::device_budget_bytes)
      .def_rw("keep_host_room", &Config::keep_host_room)
      .def_rw("bucket_bytes", &Config::bucket_bytes)
      .def_rw("pinned_slots", &Config::pinned_slots)
      .def_rw("strict_pinning", &Config::strict_pinning)
      .def_rw("check_waits", &Config::check_waits)
      .def_rw("host", &Config::host)
      .def(
          "set_log", [](Config& config, const nb::object& sink) { config.log = sink_of(sink); },
          "sink"_a.none());
}

void bind_step_result(nb::module_& module) {
  const auto has = [](const StepReport& report) { return report.result.non_finite.has_value(); };
  nb::class_<StepReport>(module, "StepResult")
      .def_prop_ro("outcome",
                   [](const StepReport& report) {
                     constexpr const char* kNames[] = {"applied", "skipped", "empty", "partial"};
                     return kNames[static_cast<std::size_t>(report.result.outcome)];
                   })
      .def_prop_ro("applied", [](const StepReport& report) { return report.result.applied(); })
      .def_prop_ro("skipped", [](const StepReport& report) { return report.result.skipped(); })
      .def_prop_ro("partial", [](const StepReport& report) { return report.result.partial(); })
      .def_prop_ro("step", [](const StepReport& report) { return report.result.step; })
      .def_prop_ro("grad_norm", [](const StepReport& report) { return report.result.grad_norm; })
      .def_prop_ro("clip", [](const StepReport& report) { return report.result.clip; })
      .def_prop_ro("loss_scale", [](const StepReport& report) { return report.result.loss_scale; })
      .def_prop_ro("next_loss_scale",
                   [](const StepReport& report) { return report.result.next_loss_scale; })
      .def_prop_ro("non_finite", [has](const StepReport& report) -> nb::object {
        if (!has(report)) return nb::none();
        nb::dict out;
        out["name"] = report.non_finite_name;
        out["element"] = report.result.non_finite->element;
        out["count"] = report.result.non_finite->count;
        out["is_nan"] = report.result.non_finite->is_nan;
        return out;
      });
}

void bind_reports(nb::class_<HostEngine>& engine) {
  engine
      .def("save",
           [](HostEngine& self, const std::string& folder, std::uint32_t keep_last,
              const std::map<std::string, nb::bytes>& entries) {
             SaveOptions options{.keep_last = keep_last};
             for (const auto& [key, value] : entries) {
               options.entries[key] = std::string(value.c_str(), value.size());
             }
             SaveReport report;
             {
               const nb::gil_scoped_release released;
               report = self.save(folder, options);
             }
             return to_dict(report);
           })
      .def("load",
           [](HostEngine& self, const std::string& folder, bool strict, bool verify_first) {
             LoadReport report;
             {
               const nb::gil_scoped_release released;
               report = self.load(folder, {.strict = strict, .verify_first = verify_first});
             }
             return to_dict(report);
           })
      .def("stats",
           [](HostEngine& self) {
             StepStats stats;
             {
               const nb::gil_scoped_release released;
               stats = self.stats();
             }
             return to_dict(stats);
           })
      .def("ledger", [](HostEngine& self) {
        MemoryLedger ledger;
        {
          const nb::gil_scoped_release released;
          ledger = self.ledger();
        }
        return to_dict(ledger);
      });
}

void bind_engine(nb::module_& module) {
  nb::class_<HostEngine> engine(module, "HostEngine", nb::is_weak_referenceable());
  engine.def(nb::init<Config>(), Released())
      .def("close", &HostEngine::close, Released())
      .def_prop_ro("closed", &HostEngine::closed)
      .def(
          "add_group",
          [](HostEngine& self, const std::string& kind, const nb::dict& values, Rounding rounding,
             std::uint64_t seed, std::optional<double> ema_decay) {
            const Rule rule = make_rule(kind, values);
            const nb::gil_scoped_release released;
            return self.add_group(rule,
                                  {.rounding = rounding, .seed = seed, .ema_decay = ema_decay});
          },
          nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
      .def("set_group",
           [](HostEngine& self, std::uint32_t group, const std::string& kind,
              const nb::dict& values) {
             const Rule rule = make_rule(kind, values);
             const nb::gil_scoped_release released;
             self.set_group(group, rule);
           })
      .def("add_parameter",
           [](HostEngine& self, const std::string& name, DType dtype, std::uint64_t elems,
              std::uint64_t data, std::uint32_t group, std::uint64_t master) {
             const nb::gil_scoped_release released;
             return self.add_parameter({name, dtype, elems, data, group, master});
           })
      .def("rebind", &HostEngine::rebind, Released())
      .def("commit", &HostEngine::commit, Released())
      .def("gradients_ready", &HostEngine::gradients_ready, Released())
      .def("wait", &HostEngine::wait, Released())
      .def("step", &HostEngine::step, Released())
      .def("discard", &HostEngine::discard, Released())
      .def("synchronize", &HostEngine::synchronize, Released())
      .def("set_accumulation", &HostEngine::set_accumulation, Released())
      .def("set_max_grad_norm", &HostEngine::set_max_grad_norm, Released())
      .def("set_gradient_divisor", &HostEngine::set_gradient_divisor, Released())
      .def("loss_scale", &HostEngine::loss_scale, Released())
      .def("weights_changed", &HostEngine::weights_changed, Released())
      .def("set_placement",
           [](HostEngine& self, Placement placement, double fraction) {
             const nb::gil_scoped_release released;
             self.set_placement({.placement = placement, .device_fraction = fraction});
           })
      .def("state_digest", &HostEngine::state_digest, Released())
      .def("state_streams", &HostEngine::state_streams, Released())
      .def("step_count", &HostEngine::step_count, Released())
      .def("read_state", &HostEngine::read_state, Released())
      .def(
          "write_state",
          [](HostEngine& self, std::uint32_t parameter, std::optional<std::uint64_t> step_count,
             const std::vector<std::pair<std::string, std::uint64_t>>& streams) {
            const nb::gil_scoped_release released;
            self.write_state(parameter, {step_count, streams});
          },
          nb::arg(), nb::arg().none(), nb::arg())
      .def("describe", &HostEngine::describe, Released());
  bind_reports(engine);
}

nb::dict planned_memory(const std::vector<std::pair<std::uint64_t, DType>>& parameters,
                        const Config& config, std::uint32_t nodes) {
  std::vector<PlannedParameter> planned;
  planned.reserve(parameters.size());
  for (const auto& [elems, dtype] : parameters) planned.push_back({elems, dtype});
  return to_dict(plan_memory(planned, nodes, config));
}

}  // namespace

NB_MODULE(_native, module) {
  // Engines that live until the interpreter ends are closed by an exit handler of the package.
  nb::set_leak_warnings(false);
  nb::register_exception_translator(translate);
  module.attr("version") = kVersion;
  bind_settings(module);
  bind_step_result(module);
  bind_engine(module);
  module.def("plan_memory", &planned_memory);
  module.def("check_rule", [](const std::string& kind, const nb::dict& values) {
    std::visit([](const auto& rule) { rule.validate(); }, make_rule(kind, values));
  });
  module.def("inspect_checkpoint",
             [](const std::string& folder) { return to_dict(inspect_checkpoint(folder)); });
}

}  // namespace outboard::python
