// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "arguments.hpp"
#include "format.hpp"

namespace example {

StepLog::StepLog(const std::string& path, Begin begin) : path_(path) {
  if (path.empty()) return;
  errno = 0;
  file_.open(path, begin == Begin::anew ? std::ios::trunc : std::ios::app);
  if (!file_) {
    throw UsageError("cannot write --log " + path + ": " + std::strerror(errno) +
                     "; name a file in a folder that exists and that you may write to");
  }
}

void StepLog::write(const std::string& line) {
  errno = 0;
  file_ << line << '\n' << std::flush;
  if (!file_) {
    throw std::runtime_error("cannot write " + std::to_string(line.size() + 1) +
                             " bytes to --log " + path_ + ": " + std::strerror(errno) +
                             "; make room, or name another file");
  }
}

nlohmann::ordered_json step_json(const outboard::StepResult& result, double loss) {
  return {
      {"step", result.step},
      {"loss", loss},
      {"loss_bits", print("%a", loss)},
      {"grad_norm", result.grad_norm},
      {"grad_norm_bits", print("%a", result.grad_norm)},
      {"clip", result.clip},
      {"loss_scale", result.loss_scale},
      {"outcome", outcome_of(result)},
  };
}

std::string held_out_line(std::uint64_t step, const HeldOut& held_out) {
  return print("%7" PRIu64 "  held out: %.4f nats/%s, order-%zu model %.4f, difference %+.4f", step,
               held_out.model, held_out.unit, held_out.order, held_out.counted,
               held_out.model - held_out.counted);
}

std::string link_line(const outboard::StepStats& stats, std::size_t parameters,
                      std::uint64_t steps) {
  const double per_step = 1.0 / static_cast<double>(steps);
  const double per_parameter = per_step / static_cast<double>(parameters);
  return print("link: %.3f bytes down and %.3f up per parameter and step; gate %.0f bytes a step\n",
               static_cast<double>(stats.gradient_bytes_down) * per_parameter,
               static_cast<double>(stats.weight_bytes_up) * per_parameter,
               static_cast<double>(stats.gate_bytes_down) * per_step);
}

std::string memory_text(const ModelMemory& model, const outboard::Engine& engine,
                        const outboard::sim::MemoryUse& use) {
  using outboard::MemoryPlace;
  const outboard::MemoryLedger ledger = engine.ledger();
  const std::size_t on_device = ledger.bytes(MemoryPlace::device);
  std::string text = print("memory, %zu parameters\n", model.parameters);
  const auto line = [&text](const char* what, std::size_t bytes, const std::string& more = "") {
    text += print("  %-48s %12s%s\n", what, show_bytes(bytes).c_str(), more.c_str());
  };
  const auto times = [&use](std::size_t bytes) {
    return print(", %.2f times the device's limit",
                 static_cast<double>(bytes) / static_cast<double>(use.limit_bytes));
  };
  const std::size_t states = 16 * model.parameters;
  line("model states, 16 bytes per parameter", states, times(states));
  if (model.all != 0) line("model states and every activation", model.all, times(model.all));
  line("host: FP32 weights, AdamW's moments, staging",
       ledger.bytes(MemoryPlace::host_pinned) + ledger.bytes(MemoryPlace::host_pageable));
  line("device: weights, FP16", model.weights);
  line("        gradients, FP16", model.gradients);
  line("        activations, tokens, loss", model.activations);
  line("        the engine's", on_device);
  line("        used, in 256-byte steps", use.used_bytes);
  line("        limit", use.limit_bytes);
  line("        activation budget: what the limit leaves",
       use.limit_bytes - std::min(use.limit_bytes, model.weights + model.gradients + on_device));
  return text + "kernels work in " + model.tiles +
         ", which stand for a GPU's registers and are not device memory\n\n" + "engine memory\n" +
         ledger.to_string() + "\n" + engine.describe() + "\n";
}

}  // namespace example
