// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>

namespace text {
namespace {

using example::parse_bytes;
using example::require;
using example::require_within;
using example::UsageError;

struct Words {
  std::string device_memory, bucket, offload = "on", schedule = "exact";
};

void add_model_options(CLI::App& app, Options& options) {
  app.add_option("--batch", options.batch, "examples per step")->capture_default_str();
  app.add_option("--width", options.width, "units of each hidden layer")->capture_default_str();
  app.add_option("--embed", options.embed, "values per byte of context")->capture_default_str();
  app.add_option("--lr", options.lr, "peak learning rate")->capture_default_str();
  app.add_option("--max-grad-norm", options.max_grad_norm, "global-norm clipping, 0: off")
      ->capture_default_str();
  app.add_option("--steps", options.steps, "training steps")->capture_default_str();
  app.add_option("--seed", options.seed, "of weights, examples and the sample")
      ->capture_default_str();
}

void add_engine_options(CLI::App& app, Options& options, Words& words) {
  app.add_option("--device-memory", words.device_memory, "bytes of the software GPU, as 12MiB")
      ->default_str("12MiB");
  app.add_option("--offload", words.offload,
                 "on: optimizer state in host memory; off: all of it in device memory")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--schedule", words.schedule,
                 "exact: updates hide behind the next forward; serial: step() waits for them")
      ->check(CLI::IsMember({"exact", "serial"}))
      ->capture_default_str();
  app.add_option("--bucket", words.bucket, "bytes of gradients moved and updated at a time")
      ->default_str("256KiB");
  app.add_option("--threads", options.threads, "host threads per NUMA node, 0: the engine chooses")
      ->capture_default_str();
  app.add_option("--topology", options.topology, "a made-up machine, as \"numa:2 core:1 pu:1\"");
  app.add_option("--virtual-seed", options.virtual_seed,
                 "run in virtual time; the seed picks which ready operation goes first");
}

void add_output_options(CLI::App& app, Options& options) {
  app.add_option("--log", options.log, "write one JSON per step to this file");
  app.add_flag("--digest", options.digest, "show and log a digest of all state after each step");
  app.add_option("--print-every", options.print_every, "steps between lines")
      ->capture_default_str();
  app.add_option("--eval-every", options.eval_every, "steps between held-out losses, 0: at the end")
      ->capture_default_str();
  app.add_option("--eval-bytes", options.eval_bytes, "held-out bytes to predict")
      ->capture_default_str();
  app.add_option("--sample-bytes", options.sample_bytes, "bytes to write at the end")
      ->capture_default_str();
  app.add_option("--temperature", options.temperature, "of that sample")->capture_default_str();
}

void check(const Options& o) {
  require_within(o.batch, {"--batch", 1, 65536});
  require_within(o.width, {"--width", 1, 65536});
  require_within(o.embed, {"--embed", 1, 4096});
  require_within(o.steps, {"--steps", 1, 1000000000});
  require_within(o.print_every, {"--print-every", 1, 1000000000});
  require_within(o.eval_bytes, {"--eval-bytes", 1, std::size_t{1} << 30});
  require_within(o.sample_bytes, {"--sample-bytes", 0, 1 << 20});
  require(std::isfinite(o.lr) && o.lr >= 0.0, "--lr must be a finite number, at least 0");
  require(std::isfinite(o.temperature) && o.temperature > 0.0,
          "--temperature must be a finite number above 0");
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  Words words;
  CLI::App app("Trains a byte-level language model whose optimizer state does not fit its device.",
               "outboard_text");
  app.add_option("--data,data", options.data, "files and folders of UTF-8 text")->required();
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_model_options(app, options);
  add_engine_options(app, options, words);
  add_output_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; see --help");
  }
  if (!words.device_memory.empty()) options.device_memory = parse_bytes(words.device_memory);
  if (!words.bucket.empty()) options.bucket = parse_bytes(words.bucket);
  options.offload = words.offload == "on";
  options.serial = words.schedule == "serial";
  check(options);
  return options;
}

}  // namespace text
