// SPDX-License-Identifier: Apache-2.0
/// Trains a byte-level language model on a device that its optimizer state does not fit.
#include <iostream>

#include "../common/format.hpp"
#include "../common/program.hpp"
#include "data.hpp"
#include "model.hpp"
#include "options.hpp"
#include "trainer.hpp"

namespace {

/// Device memory that the engine will hold.
std::size_t engine_bytes(const text::ModelShape& shape, std::size_t bucket,
                         outboard::Placement placement) {
  std::vector<outboard::PlannedParameter> parameters;
  for (const std::size_t elems : shape.parameter_sizes()) parameters.push_back({elems});
  outboard::Config config;
  config.placement = placement;
  config.bucket_bytes = bucket;
  return outboard::plan_memory(parameters, 1, config).bytes(outboard::MemoryPlace::device);
}

/// What this model takes on the device either way.
std::string room_needed(const text::Options& options) {
  const text::ModelShape shape{
      .embed = options.embed, .width = options.width, .batch = options.batch};
  const auto needed = [&](outboard::Placement placement) {
    return example::show_bytes(4 * shape.parameter_elems() + shape.activation_bytes() +
                               engine_bytes(shape, options.bucket, placement));
  };
  return "this model needs about " + needed(outboard::Placement::host) +
         " of device memory with --offload on and " + needed(outboard::Placement::device_resident) +
         " with --offload off; raise --device-memory or lower --width or --batch";
}

void train(const text::Options& options) {
  const std::atomic<bool>& stop = example::stop_on_signals();
  const text::Corpus corpus = text::load_corpus(options.data);
  std::cout << corpus.files << " files, " << corpus.bytes.size() << " bytes ("
            << corpus.skipped_files << " files passed over): " << corpus.train_size()
            << " to train on, " << corpus.held_out_size() << " held out\n\n";
  text::Trainer trainer(options, corpus, std::cout);
  trainer.print_ledger();
  trainer.run(stop);
  trainer.print_summary();
  trainer.print_sample();
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<text::Options> options;
  return example::run_program({.name = "outboard_text",
                               .run =
                                   [&] {
                                     options = text::parse_options(argc, argv);
                                     if (options) train(*options);
                                   },
                               .room = [&] { return room_needed(*options); }});
}
