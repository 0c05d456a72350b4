// SPDX-License-Identifier: Apache-2.0
/// The command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "../common/run_options.hpp"
#include "shape.hpp"
#include "tokens.hpp"

namespace gpt {

/// Model sizes that were said on the command line; the preset has the others.
struct ShapeFlags {
  std::optional<std::size_t> layers, width, heads, context, vocab, batch;
};

struct Options : example::RunOptions {
  Options();  ///< the demo's

  bool cuda = false;  ///< on NVIDIA's GPU 0 instead of the software GPU
  TokenKind tokens = TokenKind::bytes;
  std::string preset = "demo";
  ShapeFlags said{};
  GptShape shape{};  ///< both together
  bool checkpointing = true;
  GradBuffers grad_buffers = GradBuffers::ring;
  std::uint32_t accumulation = 1;  ///< micro-batches per step
  std::size_t host_memory = 0;     ///< for --fit; 0: what this machine has
  std::size_t kernel_threads = 0;

  double min_lr = 0.0;
  std::uint64_t warmup = 0;
  double weight_decay = 0.1;

  std::size_t eval_tokens = 16384;
  std::size_t sample_tokens = 400;
  std::string prompt;
  std::string save;              ///< folder of checkpoints; "": none are saved
  std::uint64_t save_every = 0;  ///< steps; 0: after the last one, or when a signal stops the run
  bool save_beside = true;       ///< these while training goes on
  std::uint32_t keep = 2;        ///< newest checkpoints that stay; 0: all
  std::string resume;            ///< folder of checkpoints, or one of them, to go on from
  bool measure_products = true;  ///< at the end: what the matrix products alone would take

  bool fit = false;
};

/// Reads the command line and settles every default that depends on another flag.
/// @return nullopt if help was asked for and printed. @throws example::UsageError.
[[nodiscard]] std::optional<Options> parse_options(int argc, const char* const* argv);

/// The preset's sizes where the flags say nothing, with the vocabulary of the kind of tokens.
[[nodiscard]] GptShape shape_of(const GptShape& preset, const ShapeFlags& said, TokenKind tokens);

/// A command line that gives these options again, every default spelled out.
[[nodiscard]] std::string command_line(const Options& options);

}  // namespace gpt
