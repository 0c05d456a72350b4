// SPDX-License-Identifier: Apache-2.0
#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "host_ops.hpp"
#include "sgemm.hpp"
#include "shape.hpp"

namespace gpt {
namespace {

class ProductList {
 public:
  void add(const Product& product) {
    if (product.count > 0) products_.push_back(product);
  }
  /// `times` passes through one linear layer forward, or as many products of its size.
  void linear(std::string_view name, const LinearShape& shape, std::size_t times) {
    add({name, shape.rows, shape.out, shape.in, times});
  }
  std::vector<Product> take() { return std::move(products_); }

 private:
  std::vector<Product> products_;
};

/// Attention by blocks of queries: `inner` products over the width of a head (scores), `outer` ones
/// over the keys, or into them.
struct AttentionProducts {
  std::size_t inner = 0, outer = 0;
};

void add_attention(const GptShape& shape, std::size_t heads, const AttentionProducts& products,
                   ProductList& list) {
  const std::size_t d = shape.head_width();
  for (std::size_t first = 0; first < shape.context; first += kQueryRows) {
    const std::size_t queries = std::min(kQueryRows, shape.context - first);
    list.add({"attention, scores", queries, first + queries, d, heads * products.inner});
    list.add({"attention, values", queries, d, first + queries, heads * products.outer});
  }
}

/// Larger ones run at the same rate, and would take time and memory.
constexpr std::size_t kMostTimed = 2048;

/// One of the product's `count`.
double seconds_of(const Product& whole) {
  const Product product{.name = whole.name,
                        .rows = std::min(whole.rows, kMostTimed),
                        .cols = std::min(whole.cols, kMostTimed),
                        .depth = std::min(whole.depth, kMostTimed),
                        .count = whole.count};
  const Sgemm k{.rows = product.rows,
                .cols = product.cols,
                .depth = product.depth,
                .a = {nullptr, product.depth},
                .b = {nullptr, product.cols},
                .c_stride = product.cols};
  std::vector<float> a(k.rows * k.depth, 0.5f), b(k.depth * k.cols, 0.25f), c(k.rows * k.cols);
  Sgemm call = k;
  call.a.values = a.data();
  call.b.values = b.data();
  call.c = c.data();
  sgemm(call);
  using Clock = std::chrono::steady_clock;
  double best = 0.0;
  const auto begin = Clock::now();
  for (int calls = 0; calls < 2 || Clock::now() - begin < std::chrono::milliseconds(5); ++calls) {
    const auto start = Clock::now();
    sgemm(call);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = calls == 0 ? seconds : std::min(best, seconds);
  }
  return best * whole.flops() / product.flops();
}

}  // namespace

std::vector<Product> matrix_products(const GptShape& shape, std::size_t rows, bool checkpointing,
                                     Pass pass) {
  const std::size_t n = shape.positions(rows), c = shape.width;
  const bool training = pass == Pass::training;
  // The last block's inside is still there when backward begins.
  const std::size_t again = training && checkpointing ? shape.layers - 1 : 0;
  const std::size_t backward = training ? shape.layers : 0;
  const std::size_t inside = shape.layers + again + 2 * backward;
  ProductList list;
  list.linear("query, key and value", {n, c, 3 * c}, inside);
  list.linear("attention projection", {n, c, c}, inside);
  list.linear("feed-forward, up", {n, c, 4 * c}, inside);
  list.linear("feed-forward, down", {n, 4 * c, c}, inside - again);
  const std::size_t heads = rows * shape.heads;
  add_attention(
      shape, heads,
      {.inner = shape.layers + again + 2 * backward, .outer = shape.layers + again + 3 * backward},
      list);
  // Logits are made again where a tile of the vocabulary is not the whole, and for the table.
  const std::size_t logits = training ? (shape.vocab <= kLossVocab ? 2 : 3) : 1;
  list.linear("output projection", {n, c, shape.vocab}, logits + (training ? 2 : 0));
  return list.take();
}

double total_flops(const std::vector<Product>& products) {
  double flops = 0.0;
  for (const Product& product : products) flops += product.flops();
  return flops;
}

double sgemm_seconds(const std::vector<Product>& products, std::size_t threads) {
  openblas_set_num_threads(1);
  std::vector<double> seconds(std::max<std::size_t>(threads, 1));
  std::vector<std::thread> others;
  // All at once, as in a kernel: cores may share caches, memory and clock.
  const auto measure = [&](double& sum) {
    for (const Product& product : products) {
      sum += static_cast<double>(product.count) * seconds_of(product);
    }
  };
  for (std::size_t i = 1; i < seconds.size(); ++i) {
    others.emplace_back([&measure, &sum = seconds[i]] { measure(sum); });
  }
  measure(seconds[0]);
  for (std::thread& other : others) other.join();
  return *std::max_element(seconds.begin(), seconds.end()) / static_cast<double>(seconds.size());
}

}  // namespace gpt
