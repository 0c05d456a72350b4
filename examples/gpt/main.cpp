// SPDX-License-Identifier: Apache-2.0
/// Trains a decoder-only transformer on a device that its optimizer state does not fit.
#include <iostream>
#include <stdexcept>

#include "../common/format.hpp"
#include "../common/program.hpp"
#include "fit.hpp"
#include "options.hpp"
#include "outboard/error.hpp"
#include "tokens.hpp"
#include "trainer.hpp"

namespace {

/// What this model takes on the device, as it is asked for and at its smallest.
std::string room_needed(const gpt::Options& options) {
  using example::show_bytes;
  if (options.cuda) return "lower --batch, --context or the model's size";
  const std::size_t asked = gpt::memory_need(options.shape, gpt::memory_mode(options)).device();
  const std::size_t least = gpt::memory_need(options.shape, {}).device();
  const std::string text = "--device-memory is " + show_bytes(options.device_memory) +
                           ", and this run needs about " + show_bytes(asked) + " there";
  if (asked <= options.device_memory) {
    return text + "; this machine gave out: lower --device-memory, --threads or the model's size";
  }
  return text + ": " + show_bytes(asked - options.device_memory) + " too little; " +
         (least < asked
              ? "with --offload on, --grad-buffers ring and --checkpointing on it needs " +
                    show_bytes(least) + "; "
              : "") +
         "raise --device-memory, or lower --batch, --context or the model's size";
}

/// The device is memory of this machine as well.
void check_machine(const gpt::Options& options) {
  const gpt::MemoryNeed need = gpt::memory_need(options.shape, gpt::memory_mode(options));
  const std::size_t machine = gpt::physical_memory();
  if (need.device() + need.host <= machine) return;
  throw outboard::Error(outboard::ErrorCode::out_of_memory,
                        "this run needs about " + example::show_bytes(need.host) +
                            " of host memory and " + example::show_bytes(need.device()) +
                            " for the software GPU, and this machine has " +
                            example::show_bytes(machine) +
                            "; choose a smaller --preset (--fit lists what each needs)");
}

void fit(const gpt::Options& options) {
  const gpt::FitLimits limits{
      .device = options.device_memory,
      .host = options.host_memory != 0 ? options.host_memory : gpt::physical_memory()};
  const gpt::FitReport report = gpt::fit_presets(options, limits);
  std::cout << report.text;
  if (!report.largest.empty()) return;
  throw std::runtime_error("no preset fits; raise --device-memory (" +
                           example::show_bytes(limits.device) + ") or --host-memory (" +
                           example::show_bytes(limits.host) + "), or lower --batch");
}

void train(const gpt::Options& options) {
  const std::atomic<bool>& stop = example::stop_on_signals();
  std::cout << "this run, every default spelled out:\n" << gpt::command_line(options) << "\n\n";
  const gpt::Tokens tokens = gpt::load_tokens({.paths = options.data,
                                               .kind = options.tokens,
                                               .vocab = options.shape.vocab,
                                               .context = options.shape.context});
  const std::string unit = gpt::unit_of(options.tokens);
  std::cout << tokens.files << " files, " << tokens.values.size() << " " << unit << "s ("
            << tokens.skipped_files << " files passed over): " << tokens.split.train_size()
            << " to train on, " << tokens.split.held_out_size() << " held out\n\n";
  if (!options.cuda) check_machine(options);
  gpt::Trainer trainer(options, tokens, std::cout);
  trainer.print_ledger();
  trainer.prepare_checkpoints();
  trainer.run(stop);
  if (stop) std::cout << "stopped by a signal; another one ends the program at once\n";
  trainer.print_summary();
  trainer.print_sample();
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<gpt::Options> options;
  return example::run_program({.name = "outboard_gpt",
                               .run =
                                   [&] {
                                     options = gpt::parse_options(argc, argv);
                                     if (options) options->fit ? fit(*options) : train(*options);
                                   },
                               .room = [&] { return room_needed(*options); }});
}
