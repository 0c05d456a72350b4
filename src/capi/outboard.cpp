// SPDX-License-Identifier: Apache-2.0
// The functions of outboard.h, each a thin skin over the C++ interface.
#include "outboard/outboard.h"

#include <charconv>
#include <cstring>

#include "capi/handles.hpp"
#include "capi/structs.hpp"
#include "outboard/outboard.hpp"
#include "outboard/version.hpp"

namespace {

using outboard::Device;
using outboard::Engine;
using outboard::GroupId;
using outboard::NativeStream;
using outboard::ParameterId;
using outboard::capi::CallGate;
using outboard::capi::check_room;
using outboard::capi::guarded;
using outboard::capi::read_struct;
using outboard::capi::refuse;
using outboard::capi::require_pointer;
using outboard::capi::write_struct;
using Kind = CallGate::Pass::Kind;

struct EngineObject {
  EngineObject(Device device, outboard::Config config)
      : engine(std::move(device), std::move(config)) {}
  CallGate gate;
  Engine engine;
};

// Made at the first call and never destroyed: a handle may be used while other threads' or the
// process's own destructors run.
auto& devices() {
  static auto& all = *new outboard::capi::Handles<outboard_device, Device>;
  return all;
}
auto& engines() {
  static auto& all = *new outboard::capi::Handles<outboard_engine, EngineObject>;
  return all;
}

/// `body(engine)` as one call of that kind.
template <class Body>
outboard_status with_engine(const char* call, Kind kind, outboard_engine* handle,
                            Body&& body) noexcept {
  return guarded([&] {
    const auto object = engines().find(call, "engine", handle);
    const CallGate::Pass pass(object->gate, kind, call);
    body(object->engine);
  });
}

Device open(const char* what) {
  if (std::strcmp(what, "host") == 0) return Device::host();
  if (std::strcmp(what, "sim") == 0) return Device::sim({});
  refuse("outboard_device_open",
         "no device is called '" + std::string(what) + "'; there are \"host\" and \"sim\"");
}

}  // namespace

// --- about the library --------------------------------------------------------------------------

const char* outboard_version(void) {
  return outboard::kVersion;
}

const char* outboard_last_error(void) {
  return outboard::capi::last_error();
}

const char* outboard_status_name(outboard_status status) {
  static constexpr const char* kNames[] = {
      "ok",          "invalid_argument", "invalid_config", "protocol_error",
      "unsupported", "out_of_memory",    "device_failure", "deadlock",
      "poisoned",    "numerics",         "timeout",        "io_failure",
      "no_space",    "bad_checkpoint",   "internal"};
  static_assert(std::size(kNames) == OUTBOARD_INTERNAL + 1);
  return status >= OUTBOARD_OK && status <= OUTBOARD_INTERNAL ? kNames[status] : "unknown";
}

// --- set-up -------------------------------------------------------------------------------------

outboard_status outboard_device_open(const char* what, outboard_device** out) {
  return guarded([&] {
    require_pointer("outboard_device_open", "what", what);
    require_pointer("outboard_device_open", "out", out);
    *out = devices().add(std::make_shared<Device>(open(what)));
  });
}

outboard_status outboard_device_close(outboard_device* device) {
  return guarded([&] {
    if (device == nullptr) return;
    (void)devices().find("outboard_device_close", "device", device);
    devices().remove(device);
  });
}

void outboard_config_init(outboard_config* config) {
  if (config != nullptr) *config = outboard::capi::default_config();
}
void outboard_group_init(outboard_group* group, outboard_rule rule) {
  if (group != nullptr) *group = outboard::capi::default_group(rule);
}
void outboard_parameter_init(outboard_parameter* parameter) {
  if (parameter != nullptr) *parameter = outboard::capi::default_parameter();
}

outboard_status outboard_engine_create(outboard_device* device, const outboard_config* config,
                                       outboard_engine** out) {
  return guarded([&] {
    constexpr const char* kCall = "outboard_engine_create";
    require_pointer(kCall, "out", out);
    const auto on = devices().find(kCall, "device", device);
    outboard_config settings = outboard::capi::default_config();
    if (config != nullptr) settings = read_struct(kCall, "config", config, settings);
    *out = engines().add(std::make_shared<EngineObject>(*on, outboard::capi::config_of(settings)));
  });
}

outboard_status outboard_engine_destroy(outboard_engine* engine) {
  return guarded([&] {
    if (engine == nullptr) return;
    constexpr const char* kCall = "outboard_engine_destroy";
    const auto object = engines().find(kCall, "engine", engine);
    const CallGate::Pass pass(object->gate, Kind::alone, kCall);
    engines().remove(engine);
  });
}

outboard_status outboard_add_group(outboard_engine* engine, const outboard_group* group,
                                   uint32_t* id) {
  constexpr const char* kCall = "outboard_add_group";
  return with_engine(kCall, Kind::alone, engine, [&](Engine& on) {
    require_pointer(kCall, "id", id);
    const outboard_group settings =
        read_struct(kCall, "group", group, outboard::capi::default_group(OUTBOARD_ADAMW));
    *id =
        on.add_group(outboard::capi::rule_of(kCall, settings), outboard::capi::options_of(settings))
            .value;
  });
}

outboard_status outboard_add_parameter(outboard_engine* engine, const outboard_parameter* parameter,
                                       uint32_t* id) {
  constexpr const char* kCall = "outboard_add_parameter";
  return with_engine(kCall, Kind::alone, engine, [&](Engine& on) {
    require_pointer(kCall, "id", id);
    const outboard_parameter given =
        read_struct(kCall, "parameter", parameter, outboard::capi::default_parameter());
    require_pointer(kCall, "parameter->name", given.name);
    *id = on.add_parameter(outboard::capi::spec_of(given)).value;
  });
}

outboard_status outboard_commit(outboard_engine* engine) {
  return with_engine("outboard_commit", Kind::alone, engine, [](Engine& on) { on.commit(); });
}

// --- each step ----------------------------------------------------------------------------------

outboard_status outboard_set_group(outboard_engine* engine, uint32_t group,
                                   const outboard_group* settings) {
  constexpr const char* kCall = "outboard_set_group";
  return with_engine(kCall, Kind::alone, engine, [&](Engine& on) {
    const outboard_group given =
        read_struct(kCall, "settings", settings, outboard::capi::default_group(OUTBOARD_ADAMW));
    on.set_group(GroupId{group}, outboard::capi::rule_of(kCall, given));
  });
}

outboard_status outboard_wait(outboard_engine* engine, uint32_t parameter, outboard_stream stream) {
  return with_engine("outboard_wait", Kind::shared, engine,
                     [&](Engine& on) { on.wait(ParameterId{parameter}, NativeStream{stream}); });
}

outboard_status outboard_gradient_ready(outboard_engine* engine, uint32_t parameter,
                                        const void* gradient, outboard_stream stream) {
  return with_engine("outboard_gradient_ready", Kind::shared, engine, [&](Engine& on) {
    on.gradient_ready(ParameterId{parameter}, gradient, NativeStream{stream});
  });
}

outboard_status outboard_wait_gradient_taken(outboard_engine* engine, uint32_t parameter,
                                             outboard_stream stream) {
  return with_engine("outboard_wait_gradient_taken", Kind::shared, engine, [&](Engine& on) {
    on.wait_gradient_taken(ParameterId{parameter}, NativeStream{stream});
  });
}

outboard_status outboard_step(outboard_engine* engine, outboard_step_result* result) {
  return with_engine("outboard_step", Kind::alone, engine, [&](Engine& on) {
    if (result != nullptr) check_room("outboard_step", "result", result);
    const outboard_step_result taken = outboard::capi::result_of(on.step());
    if (result != nullptr) write_struct(taken, result);
  });
}

outboard_status outboard_discard(outboard_engine* engine) {
  return with_engine("outboard_discard", Kind::alone, engine, [](Engine& on) { on.discard(); });
}

outboard_status outboard_loss_scale(outboard_engine* engine, double* out) {
  return with_engine("outboard_loss_scale", Kind::shared, engine, [&](Engine& on) {
    require_pointer("outboard_loss_scale", "out", out);
    *out = on.loss_scale();
  });
}

outboard_status outboard_set_gradient_divisor(outboard_engine* engine, double divisor) {
  return with_engine("outboard_set_gradient_divisor", Kind::alone, engine,
                     [&](Engine& on) { on.set_gradient_divisor(divisor); });
}

outboard_status outboard_set_max_grad_norm(outboard_engine* engine, double max_grad_norm) {
  return with_engine("outboard_set_max_grad_norm", Kind::alone, engine,
                     [&](Engine& on) { on.set_max_grad_norm(max_grad_norm); });
}

// --- between steps ------------------------------------------------------------------------------

outboard_status outboard_synchronize(outboard_engine* engine) {
  return with_engine("outboard_synchronize", Kind::alone, engine,
                     [](Engine& on) { on.synchronize(); });
}

outboard_status outboard_weights_changed(outboard_engine* engine, uint32_t parameter,
                                         outboard_stream stream) {
  return with_engine("outboard_weights_changed", Kind::alone, engine, [&](Engine& on) {
    on.weights_changed(ParameterId{parameter}, NativeStream{stream});
  });
}

outboard_status outboard_rebind(outboard_engine* engine, uint32_t parameter, void* data) {
  return with_engine("outboard_rebind", Kind::alone, engine,
                     [&](Engine& on) { on.rebind(ParameterId{parameter}, data); });
}

outboard_status outboard_state_digest(outboard_engine* engine, uint64_t* out) {
  return with_engine("outboard_state_digest", Kind::alone, engine, [&](Engine& on) {
    require_pointer("outboard_state_digest", "out", out);
    *out = on.state_digest();
  });
}

outboard_status outboard_read_state(outboard_engine* engine, uint32_t parameter, const char* stream,
                                    float* out, uint64_t elems) {
  constexpr const char* kCall = "outboard_read_state";
  return with_engine(kCall, Kind::alone, engine, [&](Engine& on) {
    require_pointer(kCall, "stream", stream);
    if (elems > 0) require_pointer(kCall, "out", out);
    on.read_state(ParameterId{parameter}, stream, {out, elems});
  });
}

outboard_status outboard_write_state(outboard_engine* engine, uint32_t parameter,
                                     const char* stream, const float* values, uint64_t elems,
                                     uint64_t step_count) {
  constexpr const char* kCall = "outboard_write_state";
  return with_engine(kCall, Kind::alone, engine, [&](Engine& on) {
    require_pointer(kCall, "stream", stream);
    if (elems > 0) require_pointer(kCall, "values", values);
    const Engine::StateSource source{stream, {values, elems}};
    on.write_state(ParameterId{parameter}, {&source, 1}, step_count);
  });
}

outboard_status outboard_save(outboard_engine* engine, const char* folder, uint32_t keep_last) {
  return with_engine("outboard_save", Kind::alone, engine, [&](Engine& on) {
    require_pointer("outboard_save", "folder", folder);
    outboard::SaveOptions options;
    options.keep_last = keep_last;
    (void)on.save(folder, options);
  });
}

outboard_status outboard_load(outboard_engine* engine, const char* folder, int strict) {
  return with_engine("outboard_load", Kind::alone, engine, [&](Engine& on) {
    require_pointer("outboard_load", "folder", folder);
    outboard::LoadOptions options;
    options.strict = strict != 0;
    (void)on.load(folder, options);
  });
}

outboard_status outboard_get_stats(outboard_engine* engine, outboard_stats* out) {
  return with_engine("outboard_get_stats", Kind::shared, engine, [&](Engine& on) {
    check_room("outboard_get_stats", "out", out);
    write_struct(outboard::capi::stats_of(on.stats(), on.ledger()), out);
  });
}

outboard_status outboard_describe(outboard_engine* engine, char* text, size_t bytes,
                                  size_t* needed) {
  return with_engine("outboard_describe", Kind::shared, engine, [&](Engine& on) {
    if (bytes > 0) require_pointer("outboard_describe", "text", text);
    const std::string all = on.describe();
    if (needed != nullptr) *needed = all.size() + 1;
    if (bytes == 0) return;
    const std::size_t length = std::min(all.size(), bytes - 1);
    std::memcpy(text, all.data(), length);
    text[length] = '\0';
  });
}
