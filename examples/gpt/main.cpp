// SPDX-License-Identifier: Apache-2.0
/// Trains a decoder-only transformer on a device that its optimizer state does not fit.
#include <atomic>
#include <csignal>
#include <iostream>
#include <optional>

#include "../common/format.hpp"
#include "fit.hpp"
#include "options.hpp"
#include "tokens.hpp"
#include "trainer.hpp"

namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

extern "C" void request_stop(int signal) {
  stop_requested = true;
  std::signal(signal, SIG_DFL);  // a second one ends the program at once
}

int fail(const std::string& text, int code) {
  std::cout << std::flush;
  std::cerr << "outboard_gpt: " << text << '\n';
  return code;
}

/// What this model takes on the device, as it is asked for and at its smallest.
std::string room_needed(const gpt::Options& options) {
  const std::size_t asked = gpt::memory_need(options.shape, gpt::memory_mode(options)).device();
  const std::size_t least = gpt::memory_need(options.shape, {}).device();
  std::string text = "this run needs about " + example::show_bytes(asked) +
                     " of device memory, and --device-memory is " +
                     example::show_bytes(options.device_memory);
  if (asked > options.device_memory) {
    text += ": " + example::show_bytes(asked - options.device_memory) + " too little";
  }
  if (least < asked) {
    text += "; with --offload on, --grad-buffers ring and --checkpointing on it needs " +
            example::show_bytes(least);
  }
  return text + "; raise --device-memory, or lower --batch, --context or the model's size";
}

int fit(const gpt::Options& options) {
  const gpt::FitLimits limits{
      .device = options.device_memory,
      .host = options.host_memory != 0 ? options.host_memory : gpt::physical_memory()};
  const gpt::FitReport report = gpt::fit_presets(options, limits);
  std::cout << report.text;
  if (!report.largest.empty()) return 0;
  return fail("no preset fits; raise --device-memory or --host-memory, or lower --batch", 1);
}

int train(const gpt::Options& options) {
  std::cout << gpt::command_line(options) << "\n\n";
  const gpt::Tokens tokens = gpt::load_tokens({.paths = options.data,
                                               .kind = options.tokens,
                                               .vocab = options.shape.vocab,
                                               .context = options.shape.context});
  const std::string unit = gpt::unit_of(options.tokens);
  std::cout << tokens.files << " files, " << tokens.values.size() << " " << unit << "s ("
            << tokens.skipped_files << " files passed over): " << tokens.split.train_size()
            << " to train on, " << tokens.split.held_out_size() << " held out\n\n";
  gpt::Trainer trainer(options, tokens, std::cout);
  trainer.print_ledger();
  trainer.run(stop_requested);
  trainer.print_summary();
  trainer.print_sample();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  std::optional<gpt::Options> options;
  try {
    options = gpt::parse_options(argc, argv);
    if (!options) return 0;
    return options->fit ? fit(*options) : train(*options);
  } catch (const example::UsageError& error) {
    return fail(error.what(), 2);
  } catch (const outboard::Error& error) {
    const bool room = error.code() == outboard::ErrorCode::out_of_memory;
    return fail(error.what() + (room ? "; " + room_needed(*options) : std::string()), 1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}
