// SPDX-License-Identifier: Apache-2.0
/// Trains a byte-level language model on a device that its optimizer state does not fit.
#include <atomic>
#include <csignal>
#include <iostream>

#include "../common/format.hpp"
#include "data.hpp"
#include "model.hpp"
#include "options.hpp"
#include "report.hpp"
#include "trainer.hpp"

namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

extern "C" void request_stop(int signal) {
  stop_requested = true;
  std::signal(signal, SIG_DFL);  // a second one ends the program at once
}

int fail(const std::string& text, int code) {
  std::cerr << "outboard_text: " << text << '\n';
  return code;
}

/// What this model takes on the device either way.
std::string room_needed(const text::Options& options) {
  const text::ModelShape shape{
      .embed = options.embed, .width = options.width, .batch = options.batch};
  const std::size_t elems = shape.parameter_elems();
  return "this model needs about " + example::show_bytes(4 * elems + shape.activation_bytes()) +
         " of device memory with --offload on and " +
         example::show_bytes(16 * elems + shape.activation_bytes()) +
         " with --offload off; raise --device-memory or lower --width or --batch";
}

void train(const text::Options& options) {
  const text::Corpus corpus = text::load_corpus(options.data);
  std::cout << corpus.files << " files, " << corpus.bytes.size() << " bytes ("
            << corpus.skipped_files << " files passed over): " << corpus.train_size()
            << " to train on, " << corpus.held_out_size() << " held out\n\n";
  text::Trainer trainer(options, corpus, std::cout);
  trainer.print_ledger();
  trainer.run(stop_requested);
  trainer.print_summary();
  trainer.print_sample();
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  std::optional<text::Options> options;
  try {
    options = text::parse_options(argc, argv);
    if (options) train(*options);
    return 0;
  } catch (const example::UsageError& error) {
    return fail(error.what(), 2);
  } catch (const outboard::Error& error) {
    const bool room = error.code() == outboard::ErrorCode::out_of_memory;
    return fail(error.what() + (room ? "; " + room_needed(*options) : std::string()), 1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}
