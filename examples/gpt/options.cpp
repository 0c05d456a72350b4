// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <iostream>

#include "../common/format.hpp"
#include "presets.hpp"

namespace gpt {
namespace {

using example::print;
using example::require;
using example::require_within;
using example::UsageError;

constexpr std::size_t kBillion = 1000000000;
constexpr std::size_t kByteVocabulary = 256;
constexpr std::size_t kGpt2Vocabulary = 50257;

/// What was said, before it is known what it means together.
struct Words {
  std::string tokens = "bytes", offload = "on", schedule = "exact", checkpointing = "on";
  std::string measure_products = "on";
  std::optional<std::string> grad_buffers, device_memory, host_memory, bucket;
  std::optional<double> min_lr;
  std::optional<std::uint64_t> warmup;
};

const char* const kExamples =
    "Examples:\n"
    "  outboard_gpt novels/                            the demo on a folder of text\n"
    "  outboard_gpt novels/ --log run.jsonl            then: scripts/plot_log.py run.jsonl\n"
    "  outboard_gpt novels/ --offload off              refused here: says how much is missing\n"
    "  outboard_gpt novels/ --preset small --device-memory 512MiB --steps 5000\n"
    "  outboard_gpt train.bin --tokens uint16 --preset 124m --accumulation 8 "
    "--device-memory 24GiB\n"
    "  outboard_gpt --fit --device-memory 80GiB --host-memory 256GiB --tokens uint16\n";

void add_model_options(CLI::App& app, Options& o, Words& words) {
  app.add_option("--data,data", o.data, "files and folders");
  app.add_option("--tokens", words.tokens,
                 "bytes: UTF-8 text, each byte a token; uint16: files of 16-bit token numbers")
      ->check(CLI::IsMember({"bytes", "uint16"}))
      ->capture_default_str();
  app.add_option("--preset", o.preset, "model size: " + preset_names())->capture_default_str();
  app.add_option("--layers", o.said.layers, "blocks");
  app.add_option("--width", o.said.width, "values per token between blocks");
  app.add_option("--heads", o.said.heads, "attention heads; divide the width");
  app.add_option("--context", o.said.context, "tokens seen at a time");
  app.add_option("--vocab", o.said.vocab,
                 "different tokens; 256 for bytes, else 50257 if not said");
  app.add_option("--batch", o.said.batch, "rows of context tokens in a micro-batch");
  app.add_option("--accumulation", o.accumulation, "micro-batches per step")->capture_default_str();
}

void add_memory_options(CLI::App& app, Options& o, Words& words) {
  app.add_option("--device-memory", words.device_memory, "bytes of the software GPU, as 12MiB")
      ->default_str("18MiB for the demo, else 1GiB");
  app.add_option("--offload", words.offload,
                 "on: optimizer state in host memory; off: all of it in device memory")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--grad-buffers", words.grad_buffers,
                 "ring: gradients of two blocks on the device; full: of all of them")
      ->check(CLI::IsMember({"ring", "full"}))
      ->default_str("ring, full with --offload off");
  app.add_option("--checkpointing", words.checkpointing,
                 "on: keep one activation per block and recompute the others; off: keep all")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_flag("--fit", o.fit, "train nothing: list which presets fit in --device-memory");
  app.add_option("--host-memory", words.host_memory, "for --fit: bytes of host memory to use")
      ->default_str("what this machine has");
}

void add_engine_options(CLI::App& app, Options& o, Words& words) {
  app.add_option("--schedule", words.schedule,
                 "exact: updates hide behind the next forward; serial: step() waits for them")
      ->check(CLI::IsMember({"exact", "serial"}))
      ->capture_default_str();
  app.add_option("--bucket", words.bucket, "bytes of gradients moved and updated at a time")
      ->default_str("256KiB");
  app.add_option("--threads", o.threads, "engine threads per NUMA node, 0: the engine chooses")
      ->capture_default_str();
  app.add_option("--kernel-threads", o.kernel_threads,
                 "threads that run the software GPU's kernels, 0: one for each core")
      ->capture_default_str();
  app.add_option("--topology", o.topology, "a made-up machine, as \"numa:2 core:1 pu:1\"");
  app.add_option("--virtual-seed", o.virtual_seed,
                 "run in virtual time; the seed picks which ready operation goes first");
}

void add_training_options(CLI::App& app, Options& o, Words& words) {
  app.add_option("--steps", o.steps, "training steps")->capture_default_str();
  app.add_option("--seed", o.seed, "of weights, examples and the sample")->capture_default_str();
  app.add_option("--lr", o.lr, "peak learning rate")->capture_default_str();
  app.add_option("--min-lr", words.min_lr, "learning rate at the end")
      ->default_str("a tenth of the peak");
  app.add_option("--warmup", words.warmup, "steps from 0 to the peak")
      ->default_str("a twentieth of the steps");
  app.add_option("--weight-decay", o.weight_decay, "of matrices; gains and biases never decay")
      ->capture_default_str();
  app.add_option("--max-grad-norm", o.max_grad_norm, "global-norm clipping, 0: off")
      ->capture_default_str();
}

void add_output_options(CLI::App& app, Options& o, Words& words) {
  app.add_option("--log", o.log, "write one JSON per step to this file");
  app.add_flag("--digest", o.digest, "show and log a digest of all state after each step");
  app.add_option("--print-every", o.print_every, "steps between lines")->capture_default_str();
  app.add_option("--eval-every", o.eval_every, "steps between held-out losses, 0: at the end")
      ->capture_default_str();
  app.add_option("--eval-tokens", o.eval_tokens, "held-out tokens to predict")
      ->capture_default_str();
  app.add_option("--sample-tokens", o.sample_tokens, "tokens to write at the end")
      ->capture_default_str();
  app.add_option("--measure-products", words.measure_products,
                 "on: at the end time the kernels' matrix products alone, for a second or two")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--temperature", o.temperature, "of the sample")->capture_default_str();
  app.add_option("--prompt", o.prompt, "what the sample begins with; default: held-out text");
}

void settle_shape(Options& o, const Words& words) {
  const Preset* preset = find_preset(o.preset);
  require(preset != nullptr,
          "--preset is \"" + o.preset + "\"; it must be one of " + preset_names());
  o.tokens = words.tokens == "bytes" ? TokenKind::bytes : TokenKind::uint16;
  const std::size_t vocab = o.said.vocab.value_or(kByteVocabulary);
  require(o.tokens != TokenKind::bytes || vocab == kByteVocabulary,
          "--vocab is " + std::to_string(vocab) +
              ", but bytes are 256; leave it out, or pass --tokens uint16");
  o.shape = shape_of(preset->shape, o.said, o.tokens);
}

void settle(Options& o, const Words& words) {
  settle_shape(o, words);
  const char* room = o.preset == "demo" || o.preset == "tiny" ? "18MiB" : "1GiB";
  o.device_memory = example::parse_bytes(words.device_memory.value_or(room));
  if (words.host_memory) o.host_memory = example::parse_bytes(*words.host_memory);
  if (words.bucket) o.bucket = example::parse_bytes(*words.bucket);
  o.offload = words.offload == "on";
  o.serial = words.schedule == "serial";
  o.checkpointing = words.checkpointing == "on";
  o.measure_products = words.measure_products == "on";
  const bool ring = words.grad_buffers.value_or(o.offload ? "ring" : "full") == "ring";
  o.grad_buffers = ring ? GradBuffers::ring : GradBuffers::full;
  o.min_lr = words.min_lr.value_or(0.1 * o.lr);
  o.warmup = words.warmup.value_or(o.steps / 20);
}

void check_shape(const GptShape& shape) {
  require_within(shape.layers, {"--layers", 1, 1024});
  require_within(shape.width, {"--width", 1, 8192});
  require_within(shape.heads, {"--heads", 1, shape.width});
  require(shape.width % shape.heads == 0, "--heads is " + std::to_string(shape.heads) +
                                              " and --width " + std::to_string(shape.width) +
                                              "; the width must be a multiple of the heads");
  require_within(shape.context, {"--context", 2, 4096});
  require_within(shape.vocab, {"--vocab", 2, 65536});
  require_within(shape.batch, {"--batch", 1, (1 << 20) / shape.context});
}

void check_number(double value, const char* flag, bool zero_allowed) {
  require(std::isfinite(value) && (value > 0.0 || (zero_allowed && value == 0.0)),
          std::string(flag) + " is " + print("%g", value) + "; it must be a finite number " +
              (zero_allowed ? "of at least 0" : "above 0"));
}

void check(const Options& o) {
  check_shape(o.shape);
  require_within(o.accumulation, {"--accumulation", 1, 65536});
  require_within(o.steps, {"--steps", 1, kBillion});
  require_within(o.warmup, {"--warmup", 0, o.steps});
  require_within(o.print_every, {"--print-every", 1, kBillion});
  require_within(o.eval_tokens, {"--eval-tokens", 1, kBillion});
  require_within(o.sample_tokens, {"--sample-tokens", 0, 1 << 20});
  require_within(o.kernel_threads, {"--kernel-threads", 0, 1024});
  check_number(o.lr, "--lr", true);
  check_number(o.min_lr, "--min-lr", true);
  check_number(o.weight_decay, "--weight-decay", true);
  check_number(o.max_grad_norm, "--max-grad-norm", true);
  check_number(o.temperature, "--temperature", false);
  require(o.fit || !o.data.empty(), "--data is missing: name files or folders to train on");
  require(o.prompt.empty() || o.tokens == TokenKind::bytes,
          "--prompt is text, and with --tokens uint16 tokens are numbers; leave it out");
  require(o.offload || o.accumulation > 1 || o.grad_buffers == GradBuffers::full,
          "--grad-buffers ring needs --offload on or --accumulation of at least 2: with the state "
          "on the device gradients stay until the update has read them; use --grad-buffers full");
}

/// The fewest digits that give the same double again.
std::string shortest(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(" '\"\\$*?&|;<>()\n") == std::string::npos && !text.empty()) return text;
  std::string all = "'";
  for (const char c : text) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return all + "'";
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  Words words;
  CLI::App app("Trains a decoder-only transformer whose optimizer state does not fit its device.",
               "outboard_gpt");
  app.footer(kExamples);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_model_options(app, options, words);
  app.get_option("--data")->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_memory_options(app, options, words);
  add_engine_options(app, options, words);
  add_training_options(app, options, words);
  add_output_options(app, options, words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; see --help");
  }
  settle(options, words);
  check(options);
  return options;
}

GptShape shape_of(const GptShape& preset, const ShapeFlags& said, TokenKind tokens) {
  const bool bytes = tokens == TokenKind::bytes;
  return {.layers = said.layers.value_or(preset.layers),
          .width = said.width.value_or(preset.width),
          .heads = said.heads.value_or(preset.heads),
          .context = said.context.value_or(preset.context),
          .vocab = said.vocab.value_or(bytes ? kByteVocabulary : kGpt2Vocabulary),
          .batch = said.batch.value_or(preset.batch)};
}

std::string command_line(const Options& o) {
  std::string line = "outboard_gpt";
  const auto add = [&line](const char* flag, const std::string& value) {
    line += std::string(" ") + flag + " " + quoted(value);
  };
  const auto count = [&add](const char* flag, std::uint64_t value) {
    add(flag, std::to_string(value));
  };
  const auto number = [&add](const char* flag, double value) { add(flag, shortest(value)); };
  const auto choice = [&add](const char* flag, bool first, const char* one, const char* other) {
    add(flag, first ? one : other);
  };
  for (const auto& path : o.data) add("--data", path.string());
  choice("--tokens", o.tokens == TokenKind::bytes, "bytes", "uint16");
  add("--preset", o.preset);
  count("--layers", o.shape.layers);
  count("--width", o.shape.width);
  count("--heads", o.shape.heads);
  count("--context", o.shape.context);
  count("--vocab", o.shape.vocab);
  count("--batch", o.shape.batch);
  count("--accumulation", o.accumulation);
  count("--device-memory", o.device_memory);
  if (o.host_memory != 0) count("--host-memory", o.host_memory);
  choice("--offload", o.offload, "on", "off");
  choice("--grad-buffers", o.grad_buffers == GradBuffers::ring, "ring", "full");
  choice("--checkpointing", o.checkpointing, "on", "off");
  choice("--schedule", o.serial, "serial", "exact");
  count("--bucket", o.bucket);
  count("--threads", o.threads);
  count("--kernel-threads", o.kernel_threads);
  if (!o.topology.empty()) add("--topology", o.topology);
  if (o.virtual_seed) count("--virtual-seed", *o.virtual_seed);
  count("--steps", o.steps);
  count("--seed", o.seed);
  number("--lr", o.lr);
  number("--min-lr", o.min_lr);
  count("--warmup", o.warmup);
  number("--weight-decay", o.weight_decay);
  number("--max-grad-norm", o.max_grad_norm);
  if (!o.log.empty()) add("--log", o.log);
  if (o.digest) line += " --digest";
  count("--print-every", o.print_every);
  count("--eval-every", o.eval_every);
  count("--eval-tokens", o.eval_tokens);
  count("--sample-tokens", o.sample_tokens);
  number("--temperature", o.temperature);
  if (!o.prompt.empty()) add("--prompt", o.prompt);
  choice("--measure-products", o.measure_products, "on", "off");
  if (o.fit) line += " --fit";
  return line;
}

}  // namespace gpt
