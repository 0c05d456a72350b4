// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <algorithm>

#include "presets.hpp"

namespace gpt {
namespace {

using example::Flags;
using example::kBillion;
using example::require;
using example::require_within;
using example::Sign;
using example::spell_bytes;

constexpr std::size_t kByteVocabulary = 256;
constexpr std::size_t kGpt2Vocabulary = 50257;
constexpr std::size_t kSmallDevice = std::size_t{16} << 20;
constexpr std::size_t kDevice = std::size_t{1} << 30;

/// What was said, before it is known what it means together.
struct Words {
  bool bytes = true;
  std::optional<bool> ring;
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

void add_model_flags(Flags& flags, Options& o, Words& words) {
  flags.data(o.data, "what to train on: files, and folders with all below them");
  flags.either("--tokens", "bytes|uint16", words.bytes,
               "bytes: UTF-8 text, each byte a token; uint16: files of 16-bit token numbers");
  flags.text("--preset", o.preset, "model size: " + preset_names());
  const char* const preset = "the preset's";
  flags.count({"--layers", 1, 1024}, o.said.layers, "blocks", preset);
  flags.count({"--width", 1, 8192}, o.said.width, "values per token between blocks", preset);
  flags.count({"--heads", 1, 8192}, o.said.heads, "attention heads; divide the width", preset);
  flags.count({"--context", 2, 4096}, o.said.context, "tokens seen at a time", preset);
  flags.count({"--vocab", 2, 65536}, o.said.vocab, "different tokens", "256 for bytes, else 50257");
  flags.count({"--batch", 1, 1 << 19}, o.said.batch, "rows of context tokens in a micro-batch",
              preset);
  flags.count({"--accumulation", 1, 65536}, o.accumulation, "micro-batches per step");
}

void add_memory_flags(Flags& flags, Options& o, Words& words) {
  add_device_flags(flags, o, spell_bytes(kSmallDevice) + " for tiny and demo, else 1GiB");
  flags.either("--grad-buffers", "ring|full", words.ring,
               "ring: gradients of two blocks on the device; full: of all of them",
               "ring, full unless --offload on");
  flags.either("--device", "cuda|sim", o.cuda,
               "sim: the software GPU; cuda: NVIDIA's GPU 0, with all of its memory");
  flags.either("--checkpointing", "on|off", o.checkpointing,
               "on: keep one activation per block and recompute the others; off: keep all");
  flags.mark("--fit", o.fit, "train nothing: list which presets fit in --device-memory");
  flags.bytes({"--host-memory", 1 << 20, std::uint64_t{1} << 50}, o.host_memory,
              "for --fit: host memory to use", "what this machine has");
  flags.count({"--kernel-threads", 0, 1024}, o.kernel_threads,
              "threads that run the software GPU's kernels, 0: one for each core");
}

void add_run_flags(Flags& flags, Options& o, Words& words) {
  add_training_flags(flags, o);
  flags.number("--min-lr", Sign::not_negative, words.min_lr, "learning rate at the end",
               "a tenth of the peak");
  flags.count({"--warmup", 0, kBillion}, words.warmup, "applied steps from 0 to the peak",
              "a twentieth of the steps");
  flags.number("--weight-decay", Sign::not_negative, o.weight_decay,
               "of matrices; gains and biases never decay");
  add_output_flags(flags, o);
  flags.count({"--eval-tokens", 1, kBillion}, o.eval_tokens, "held-out tokens to predict");
  flags.count({"--sample-tokens", 0, 1 << 20}, o.sample_tokens, "tokens to write at the end");
  flags.either("--measure-products", "on|off", o.measure_products,
               "on: at the end time the kernels' matrix products alone, for a second or two");
  flags.text("--save", o.save, "folder to save checkpoints into");
  flags.count({"--keep", 0, kBillion}, o.keep, "newest checkpoints that stay there; 0: all");
  flags.count(
      {"--save-every", 0, kBillion}, o.save_every,
      "steps between checkpoints; 0: only after the last step, or when stopped by a signal");
  flags.either("--save-beside", "on|off", o.save_beside,
               "on: those of --save-every are written while training goes on; off: it waits");
  flags.text("--resume", o.resume, "folder of checkpoints, or one of them, to go on from");
  flags.text("--prompt", o.prompt, "what the sample begins with; default: held-out text");
}

void settle_shape(Options& o, bool bytes) {
  const Preset* preset = find_preset(o.preset);
  require(preset != nullptr,
          "--preset is \"" + o.preset + "\"; it must be one of " + preset_names());
  o.tokens = bytes ? TokenKind::bytes : TokenKind::uint16;
  const std::size_t vocab = o.said.vocab.value_or(kByteVocabulary);
  require(!bytes || vocab == kByteVocabulary,
          "--vocab is " + std::to_string(vocab) +
              ", but bytes are 256; leave it out, or pass --tokens uint16");
  o.shape = shape_of(preset->shape, o.said, o.tokens);
}

void settle(Options& o, const Words& words) {
  settle_shape(o, words.bytes);
  const bool small = o.preset == "demo" || o.preset == "tiny";
  if (o.device_memory == 0) o.device_memory = small ? kSmallDevice : kDevice;
  o.grad_buffers =
      words.ring.value_or(o.offload.all_on_host()) ? GradBuffers::ring : GradBuffers::full;
  o.min_lr = words.min_lr.value_or(0.1 * o.lr);
  o.warmup = words.warmup.value_or(o.steps / 20);
}

void check_shape(const GptShape& shape) {
  require_within(shape.heads, {"--heads", 1, shape.width});
  require(shape.width % shape.heads == 0, "--heads is " + std::to_string(shape.heads) +
                                              " and --width " + std::to_string(shape.width) +
                                              "; the width must be a multiple of the heads");
  require_within(shape.batch, {"--batch", 1, (1 << 20) / shape.context});
  constexpr std::size_t kMostOfHead = std::size_t{1} << 18;
  require(shape.context * shape.head_width() <= kMostOfHead,
          "--context is " + std::to_string(shape.context) + " and a head " +
              std::to_string(shape.head_width()) + " wide, together " +
              std::to_string(shape.context * shape.head_width()) + " of at most " +
              std::to_string(kMostOfHead) + "; raise --heads or lower --context");
}

void check(const Options& o) {
  check_shape(o.shape);
  example::check_schedule(o);
  require(
      !o.cuda || !o.virtual_seed,
      "--virtual-seed runs the software GPU's clock, and --device is cuda; leave one of them out");
  require_within(o.warmup, {"--warmup", 0, o.steps});
  require(o.save_every == 0 || !o.save.empty(),
          "--save-every needs --save, the folder to save into");
  require(o.fit || !o.data.empty(), "--data is missing: name files or folders to train on");
  const auto& data = o.data;
  require(std::find(data.begin(), data.end(), "") == data.end(),
          "--data has an empty name; name files or folders to train on");
  require(o.prompt.empty() || o.tokens == TokenKind::bytes,
          "--prompt is text, and with --tokens uint16 tokens are numbers; leave it out");
  require(o.offload.all_on_host() || o.accumulation > 1 || o.grad_buffers == GradBuffers::full,
          "--grad-buffers ring needs --offload on or --accumulation of at least 2: with state on "
          "the device gradients stay until the update has read them; use --grad-buffers full");
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(" '\"\\$*?&|;<>()\n") == std::string::npos && !text.empty()) return text;
  std::string all = "'";
  for (const char c : text) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return all + "'";
}

}  // namespace

Options::Options() {
  steps = 1400;
  lr = 2e-3;
  eval_every = 200;
  temperature = 0.7;
}

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  Words words;
  Flags flags({"outboard_gpt",
               "Trains a decoder-only transformer whose optimizer state does not fit its device.",
               kExamples});
  add_model_flags(flags, options, words);
  add_memory_flags(flags, options, words);
  add_run_flags(flags, options, words);
  if (!flags.parse(argc, argv)) return std::nullopt;
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
  const auto size = [&add](const char* flag, std::size_t bytes) { add(flag, spell_bytes(bytes)); };
  const auto number = [&add](const char* flag, double value) {
    add(flag, example::spell_number(value));
  };
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
  choice("--device", o.cuda, "cuda", "sim");
  size("--device-memory", o.device_memory);
  if (o.host_memory != 0) size("--host-memory", o.host_memory);
  add("--offload", example::spell_offload(o.offload));
  choice("--grad-buffers", o.grad_buffers == GradBuffers::ring, "ring", "full");
  choice("--checkpointing", o.checkpointing, "on", "off");
  add("--schedule", example::spell_schedule(o.schedule));
  size("--bucket", o.bucket);
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
  if (o.loss_scale) number("--loss-scale", *o.loss_scale);
  if (!o.log.empty()) add("--log", o.log);
  if (o.digest) line += " --digest";
  count("--print-every", o.print_every);
  count("--eval-every", o.eval_every);
  count("--eval-tokens", o.eval_tokens);
  count("--sample-tokens", o.sample_tokens);
  number("--temperature", o.temperature);
  if (!o.save.empty()) {
    add("--save", o.save);
    count("--save-every", o.save_every);
    add("--save-beside", o.save_beside ? "on" : "off");
    count("--keep", o.keep);
  }
  if (!o.resume.empty()) add("--resume", o.resume);
  if (!o.prompt.empty()) add("--prompt", o.prompt);
  choice("--measure-products", o.measure_products, "on", "off");
  if (o.fit) line += " --fit";
  return line;
}

}  // namespace gpt
