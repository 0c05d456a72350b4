// SPDX-License-Identifier: Apache-2.0
// The kernels of examples/gpt, run by the same text that a GPU compiles: block after block, its
// threads in turn between two barriers.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "examples/gpt/cuda/bodies.hpp"
#include "fake_cuda/machine.hpp"

namespace outboard::fake_cuda {
namespace {

using namespace gpt::cuda;
using sim::KernelView;

/// What the host may touch of `count` elements; null stays null.
template <class T>
void alias(KernelView& view, T*& address, std::uint64_t count) {
  if (address != nullptr) address = view.as<T>(address, count).data();
}
template <class T>
void alias(KernelView& view, const T*& address, std::uint64_t count) {
  if (address != nullptr) address = view.as<const T>(address, count).data();
}
std::uint64_t alias(KernelView& view, Tokens& at) {
  alias(view, at.tokens, std::uint64_t{at.rows} * (at.context + 1));
  return std::uint64_t{at.rows} * at.context;
}

void open(EmbedArguments& k, KernelView& view) {
  const std::uint64_t positions = alias(view, k.at);
  const std::uint64_t largest =
      *std::max_element(k.at.tokens, k.at.tokens + std::uint64_t{k.at.rows} * (k.at.context + 1));
  alias(view, k.wte, (largest + 1) * k.width);
  alias(view, k.wpe, std::uint64_t{k.at.context} * k.width);
  alias(view, k.out, positions * k.width);
}
void open(EmbedBackwardArguments& k, KernelView& view) {
  const std::uint64_t positions = alias(view, k.at);
  const std::uint64_t largest =
      *std::max_element(k.at.tokens, k.at.tokens + std::uint64_t{k.at.rows} * (k.at.context + 1));
  alias(view, k.dy, positions * k.width);
  alias(view, k.dwte, (largest + 1) * k.width);
  alias(view, k.dwpe, std::uint64_t{k.at.context} * k.width);
}
void open(NormalArguments& k, KernelView& view) {
  const std::uint64_t elems = std::uint64_t{k.rows} * k.width;
  alias(view, k.x, elems);
  alias(view, k.gain, k.width);
  alias(view, k.bias, k.width);
  alias(view, k.y, elems);
}
void open(NormalBackwardArguments& k, KernelView& view) {
  const std::uint64_t elems = std::uint64_t{k.rows} * k.width;
  alias(view, k.x, elems);
  alias(view, k.gain, k.width);
  alias(view, k.dy, elems);
  alias(view, k.residual, elems);
  alias(view, k.dx, elems);
  alias(view, k.moments, 2 * std::uint64_t{k.rows});
}
void open(ColumnsArguments& k, KernelView& view) {
  const std::uint64_t elems = std::uint64_t{k.rows} * k.width;
  alias(view, k.x, elems);
  alias(view, k.dy, elems);
  alias(view, k.moments, 2 * std::uint64_t{k.rows});
  alias(view, k.dgain, k.width);
  alias(view, k.dbias, k.width);
}
void open(GeluArguments& k, KernelView& view) {
  alias(view, k.x, k.elems);
  alias(view, k.dy, k.elems);
  alias(view, k.out, k.elems);
}
void open(AttentionArguments& k, KernelView& view) {
  const std::uint64_t positions = std::uint64_t{k.rows} * k.context;
  const std::uint64_t elems = positions * k.heads * k.head_width;
  const bool backward = k.dout != nullptr;
  alias(view, k.qkv, 3 * elems);
  alias(view, k.dout, elems);
  alias(view, k.out, backward ? 3 * elems : elems);
  alias(view, k.stats, 3 * positions * k.heads);
}
void open(LossArguments& k, KernelView& view) {
  const std::uint64_t positions = alias(view, k.at);
  const std::uint64_t elems = std::uint64_t{k.count} * k.vocab;
  alias(view, k.logits, elems);
  alias(view, k.gradient, elems);
  alias(view, k.log_sum, positions);
  alias(view, k.losses, positions);
}
void open(SumArguments& k, KernelView& view) {
  alias(view, k.values, k.count);
  alias(view, k.sum, 1);
}
void open(NarrowArguments& k, KernelView& view) {
  alias(view, k.src, k.elems);
  alias(view, k.dst, k.elems);
}

struct Entry {
  std::size_t bytes;
  std::function<void(const void*, const LaunchSize&, KernelView&)> run;
};

/// `body`: of (block, arguments), or of (block, blocks, arguments).
template <class Arguments, class Body>
Entry entry(Body body) {
  return {
      sizeof(Arguments), [body](const void* raw, const LaunchSize& size, KernelView& view) {
        Arguments arguments;
        std::memcpy(&arguments, raw, sizeof arguments);
        open(arguments, view);
        for (std::uint64_t index = 0; index < size.blocks; ++index) {
          std::vector<float> shared(size.shared_bytes / sizeof(float));  // fenced by a sanitizer
          const Block block{index, size.threads, shared.data()};
          if constexpr (std::is_invocable_v<Body, const Block&, const Arguments&>) {
            body(block, arguments);
          } else {
            body(block, size.blocks, arguments);
          }
        }
      }};
}

const std::map<std::string, Entry>& table() {
  static const std::map<std::string, Entry> kernels = {
      {"gpt_embed", entry<EmbedArguments>(&embed)},
      {"gpt_embed_backward_table", entry<EmbedBackwardArguments>(&embed_backward_table)},
      {"gpt_embed_backward_places", entry<EmbedBackwardArguments>(&embed_backward_places)},
      {"gpt_normal", entry<NormalArguments>(&normal)},
      {"gpt_normal_backward", entry<NormalBackwardArguments>(&normal_backward)},
      {"gpt_columns", entry<ColumnsArguments>(&columns)},
      {"gpt_gelu", entry<GeluArguments>(&gelu_elements)},
      {"gpt_attention", entry<AttentionArguments>(&attention)},
      {"gpt_attention_backward_query", entry<AttentionArguments>(&attention_backward_query)},
      {"gpt_attention_backward_key", entry<AttentionArguments>(&attention_backward_key)},
      {"gpt_loss_row", entry<LossArguments>(&loss_row)},
      {"gpt_sum", entry<SumArguments>(&sum_values)},
      {"gpt_narrow", entry<NarrowArguments>(&narrow_elements)}};
  return kernels;
}

}  // namespace

bool is_gpt_kernel(const std::string& name) {
  return table().contains(name);
}
std::size_t gpt_argument_bytes(const std::string& name) {
  return table().at(name).bytes;
}
void run_gpt_kernel(const std::string& name, const void* arguments, const LaunchSize& size,
                    KernelView& view) {
  table().at(name).run(arguments, size, view);
}

}  // namespace outboard::fake_cuda
