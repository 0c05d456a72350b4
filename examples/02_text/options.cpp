// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

namespace text {

Options::Options() {
  device_memory = std::size_t{12} << 20;
  steps = 1500;
  lr = 1.5e-3;
}

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options o;
  example::Flags flags(
      {"outboard_text",
       "Trains a byte-level language model whose optimizer state does not fit its device.", ""});
  flags.data(o.data, "UTF-8 text: files, and folders with all below them");
  flags.count({"--batch", 1, 65536}, o.batch, "examples per step");
  flags.count({"--width", 1, 65536}, o.width, "units of each hidden layer");
  flags.count({"--embed", 1, 4096}, o.embed, "values per byte of context");
  example::add_training_flags(flags, o);
  example::add_device_flags(flags, o, "");
  example::add_output_flags(flags, o);
  flags.count({"--eval-bytes", 1, std::uint64_t{1} << 30}, o.eval_bytes,
              "held-out bytes to predict");
  flags.count({"--sample-bytes", 0, 1 << 20}, o.sample_bytes, "bytes to write at the end");
  if (!flags.parse(argc, argv)) return std::nullopt;
  example::check_schedule(o);
  example::require(!o.data.empty(), "--data is missing: name files or folders to train on");
  return o;
}

}  // namespace text
