// SPDX-License-Identifier: Apache-2.0
#include "cuda_ops.hpp"

#include <algorithm>
#include <stdexcept>

#include "arguments.hpp"

namespace gpt::cuda {
namespace {

// Logits that are made at once: 64 MiB of FP32.
constexpr std::size_t kMostLogits = std::size_t{16} << 20;
constexpr std::uint64_t kMostBlocks = 4096;
// What any GPU gives a block without being asked twice.
constexpr std::size_t kSharedFloats = 12288;

std::uint32_t small(std::size_t value) {
  return static_cast<std::uint32_t>(value);
}

Tokens tokens_of(const TokenRows& rows) {
  return {rows.tokens.data(), small(rows.rows), small(rows.context)};
}
AttentionArguments attention_of(const AttentionShape& shape) {
  return {.qkv = nullptr,
          .dout = nullptr,
          .out = nullptr,
          .stats = nullptr,
          .rows = small(shape.rows),
          .context = small(shape.context),
          .heads = small(shape.heads),
          .head_width = small(shape.head_width)};
}

}  // namespace

CudaOps::Sizes::Sizes(const GptShape& shape) {
  const std::size_t positions = shape.positions(shape.batch);
  chunk_rows = std::clamp<std::size_t>(kMostLogits / shape.vocab, 1, positions);
  // Of a row two moments, of a query of each head three numbers; never at once.
  floats = positions * std::max<std::size_t>(2, 3 * shape.heads) * sizeof(float);
  losses = (positions + 1) * sizeof(double);
  logits = chunk_rows * shape.vocab * sizeof(float);
  dlogits = chunk_rows * shape.vocab * sizeof(Half);
  table = shape.vocab * shape.width * sizeof(float);
}

CudaOps::CudaOps(CudaMachine& machine, const GptShape& shape)
    : machine_(machine),
      sizes_(shape),
      scratch_bytes_(sizes_.total()),
      workspace_(machine, Products::kWorkspaceBytes),
      floats_(machine, sizes_.floats),
      losses_(machine, sizes_.losses),
      logits_(machine, sizes_.logits),
      dlogits_(machine, sizes_.dlogits),
      table_(machine, sizes_.table),
      products_(workspace_.as<void>()) {
  if (shape.context + 2 * kThreads > kSharedFloats) {
    throw std::runtime_error("--device cuda: a context of " + std::to_string(shape.context) +
                             " is longer than attention's " +
                             std::to_string(kSharedFloats - 2 * kThreads) + "; lower --context");
  }
  const std::size_t head_width = shape.width / shape.heads;
  if (2 * head_width + 2 * kThreads > kSharedFloats) {
    throw std::runtime_error("--device cuda: heads of a width of " + std::to_string(head_width) +
                             " are wider than attention's " +
                             std::to_string(kSharedFloats / 2 - kThreads) + "; raise --heads");
  }
}

Grid CudaOps::rows_grid(std::size_t rows) const {
  return {rows, kThreads, 2 * kThreads};
}

Grid CudaOps::elements_grid(std::size_t elems) const {
  return {std::min<std::uint64_t>((elems + kThreads - 1) / kThreads, kMostBlocks), kThreads, 0};
}

Grid CudaOps::attention_grid(const AttentionShape& shape, std::size_t floats) const {
  return {shape.rows * shape.heads * shape.context, kThreads, floats};
}

// --- embedding ----------------------------------------------------------------------------------

void CudaOps::embed_forward(const EmbedForward& k) {
  machine_.run(KernelName::embed, {k.tokens.positions(), kThreads, 0},
               EmbedArguments{.at = tokens_of(k.tokens),
                              .wte = k.wte.data(),
                              .wpe = k.wpe.data(),
                              .out = k.out.data(),
                              .width = small(k.width)});
}

void CudaOps::embed_backward(const EmbedBackward& k) {
  const EmbedBackwardArguments arguments{.at = tokens_of(k.tokens),
                                         .dy = k.dy.data(),
                                         .dwte = k.dwte.data(),
                                         .dwpe = k.dwpe.data(),
                                         .width = small(k.width)};
  machine_.run(KernelName::embed_backward_table, rows_grid(k.tokens.positions()), arguments);
  machine_.run(KernelName::embed_backward_places, {k.tokens.context, kThreads, 0}, arguments);
}

// --- LayerNorm ----------------------------------------------------------------------------------

void CudaOps::layernorm_forward(const LayerNormForward& k) {
  machine_.run(KernelName::normal, rows_grid(k.shape.rows),
               NormalArguments{.x = k.x.data(),
                               .gain = k.gain.data(),
                               .bias = k.bias.data(),
                               .y = k.y.data(),
                               .rows = small(k.shape.rows),
                               .width = small(k.shape.width)});
}

void CudaOps::layernorm_backward(const LayerNormBackward& k) {
  const bool adds = !k.residual.empty();
  machine_.run(KernelName::normal_backward, rows_grid(k.shape.rows),
               NormalBackwardArguments{.x = k.x.data(),
                                       .gain = k.gain.data(),
                                       .dy = k.dy.data(),
                                       .residual = adds ? k.residual.data() : nullptr,
                                       .dx = k.dx.data(),
                                       .moments = floats_.as<float>(),
                                       .rows = small(k.shape.rows),
                                       .width = small(k.shape.width)});
  constexpr unsigned kAll = kColumnsOfBlock * kColumnLanes;
  machine_.run(KernelName::columns,
               {(k.shape.width + kColumnsOfBlock - 1) / kColumnsOfBlock, kAll, 2 * kAll},
               ColumnsArguments{.x = k.x.data(),
                                .dy = k.dy.data(),
                                .moments = floats_.as<float>(),
                                .dgain = k.dgain.data(),
                                .dbias = k.dbias.data(),
                                .rows = small(k.shape.rows),
                                .width = small(k.shape.width)});
}

// --- linear -------------------------------------------------------------------------------------

void CudaOps::linear_forward(const LinearForward& k) {
  products_.queue({.rows = k.shape.rows,
                   .cols = k.shape.out,
                   .depth = k.shape.in,
                   .a = k.x.data(),
                   .b = k.w.data(),
                   .bias = k.b.data(),
                   .c_in = k.residual.empty() ? nullptr : k.residual.data(),
                   .c = k.y.data()},
                  machine_.stream());
}

void CudaOps::column_sums(std::span<const Half> dy, std::size_t rows, std::span<Half> db) {
  constexpr unsigned kAll = kColumnsOfBlock * kColumnLanes;
  machine_.run(KernelName::columns,
               {(db.size() + kColumnsOfBlock - 1) / kColumnsOfBlock, kAll, 2 * kAll},
               ColumnsArguments{.x = nullptr,
                                .dy = dy.data(),
                                .moments = nullptr,
                                .dgain = nullptr,
                                .dbias = db.data(),
                                .rows = small(rows),
                                .width = small(db.size())});
}

void CudaOps::linear_backward_weight(const LinearBackwardWeight& k) {
  products_.queue({.rows = k.shape.in,
                   .cols = k.shape.out,
                   .depth = k.shape.rows,
                   .a_transposed = true,
                   .a = k.x.data(),
                   .b = k.dy.data(),
                   .c = k.dw.data()},
                  machine_.stream());
  column_sums(k.dy, k.shape.rows, k.db);
}

void CudaOps::linear_backward_input(const LinearBackwardInput& k) {
  products_.queue({.rows = k.shape.rows,
                   .cols = k.shape.in,
                   .depth = k.shape.out,
                   .b_transposed = true,
                   .a = k.dy.data(),
                   .b = k.w.data(),
                   .c = k.dx.data()},
                  machine_.stream());
}

// --- attention, GELU ----------------------------------------------------------------------------

void CudaOps::attention_forward(const AttentionForward& k) {
  AttentionArguments arguments = attention_of(k.shape);
  arguments.qkv = k.qkv.data();
  arguments.out = k.out.data();
  machine_.run(KernelName::attention, attention_grid(k.shape, k.shape.context + kThreads),
               arguments);
}

void CudaOps::attention_backward(const AttentionBackward& k) {
  AttentionArguments arguments = attention_of(k.shape);
  arguments.qkv = k.qkv.data();
  arguments.dout = k.dout.data();
  arguments.out = k.dqkv.data();
  arguments.stats = floats_.as<float>();
  machine_.run(KernelName::attention_backward_query,
               attention_grid(k.shape, k.shape.context + kThreads), arguments);
  machine_.run(KernelName::attention_backward_key,
               attention_grid(k.shape, 2 * kThreads + 2 * k.shape.head_width), arguments);
}

void CudaOps::gelu_forward(const GeluForward& k) {
  machine_.run(KernelName::gelu, elements_grid(k.x.size()),
               GeluArguments{k.x.data(), nullptr, k.y.data(), k.x.size()});
}

void CudaOps::gelu_backward(const GeluBackward& k) {
  machine_.run(KernelName::gelu, elements_grid(k.x.size()),
               GeluArguments{k.x.data(), k.dy.data(), k.dx.data(), k.x.size()});
}

// --- loss ---------------------------------------------------------------------------------------

template <class Use>
void CudaOps::for_chunks(const Head& head, const Use& use) {
  const std::size_t positions = head.tokens.positions();
  for (std::size_t first = 0; first < positions; first += sizes_.chunk_rows) {
    const std::size_t count = std::min(sizes_.chunk_rows, positions - first);
    products_.queue({.rows = count,
                     .cols = head.vocab,
                     .depth = head.width,
                     .b_transposed = true,
                     .a = head.h.data() + first * head.width,
                     .b = head.wte.data(),
                     .c = logits_.as<void>(),
                     .fp32 = true},
                    machine_.stream());
    use(first, count);
  }
}

void CudaOps::loss_into(const LossForward& k, std::span<double> loss) {
  LossArguments arguments{.at = tokens_of(k.head.tokens),
                          .logits = logits_.as<float>(),
                          .gradient = k.scale ? dlogits_.as<Half>() : nullptr,
                          .log_sum = k.log_sum.data(),
                          .losses = losses_.as<double>(),
                          .scale = k.scale.value_or(0.0f),
                          .first = 0,
                          .count = 0,
                          .vocab = small(k.head.vocab)};
  for_chunks(k.head, [&](std::size_t first, std::size_t count) {
    arguments.first = small(first);
    arguments.count = small(count);
    machine_.run(KernelName::loss_row, rows_grid(count), arguments);
    if (!k.scale) return;
    products_.queue({.rows = count,
                     .cols = k.head.width,
                     .depth = k.head.vocab,
                     .a = dlogits_.as<void>(),
                     .b = k.head.wte.data(),
                     .c = k.dh.data() + first * k.head.width},
                    machine_.stream());
  });
  machine_.run(KernelName::sum, {1, 1, 0},
               SumArguments{losses_.as<double>(), loss.data(), k.head.tokens.positions()});
}

double CudaOps::loss_forward(const LossForward& k) {
  double loss = 0.0;
  double* const on_device = losses_.as<double>() + sizes_.losses / sizeof(double) - 1;
  loss_into(k, {on_device, 1});
  const Driver& api = machine_.api();
  api.require(api.copy_to_host(&loss, reinterpret_cast<CUdeviceptr>(on_device), sizeof(loss),
                               machine_.stream()),
              "cuMemcpyDtoHAsync_v2");
  api.require(api.stream_synchronize(machine_.stream()), "cuStreamSynchronize");
  return loss;
}

/// Added up in FP32 over the parts, and rounded once.
void CudaOps::loss_backward_table(const LossBackwardTable& k) {
  LossArguments arguments{.at = tokens_of(k.head.tokens),
                          .logits = logits_.as<float>(),
                          .gradient = dlogits_.as<Half>(),
                          .log_sum = const_cast<float*>(k.log_sum.data()),
                          .losses = nullptr,
                          .scale = k.scale,
                          .first = 0,
                          .count = 0,
                          .vocab = small(k.head.vocab)};
  for_chunks(k.head, [&](std::size_t first, std::size_t count) {
    arguments.first = small(first);
    arguments.count = small(count);
    machine_.run(KernelName::loss_row, rows_grid(count), arguments);
    products_.queue({.rows = k.head.vocab,
                     .cols = k.head.width,
                     .depth = count,
                     .a_transposed = true,
                     .a = dlogits_.as<void>(),
                     .b = k.head.h.data() + first * k.head.width,
                     .c_in = first == 0 ? nullptr : table_.as<void>(),
                     .c = table_.as<void>(),
                     .fp32 = true},
                    machine_.stream());
  });
  const std::size_t elems = k.head.vocab * k.head.width;
  machine_.run(KernelName::narrow, elements_grid(elems),
               NarrowArguments{table_.as<float>(), k.dwte.data(), elems});
}

void CudaOps::logits(const Logits& k) {
  products_.queue({.rows = 1,
                   .cols = k.vocab,
                   .depth = k.width,
                   .b_transposed = true,
                   .a = k.h.data(),
                   .b = k.wte.data(),
                   .c = k.out.data(),
                   .fp32 = true},
                  machine_.stream());
}

}  // namespace gpt::cuda
