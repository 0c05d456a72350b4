// SPDX-License-Identifier: Apache-2.0
/// Which kernels a micro-batch queues, in which order.
#include "model.hpp"

namespace gpt {

using outboard::Engine;
using outboard::NativeStream;

namespace {

double product_flops(std::size_t rows, std::size_t in, std::size_t out) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
}

}  // namespace

// --- what a trainer calls -----------------------------------------------------------------------

void Model::set_tokens(std::span<const Token> tokens, NativeStream stream) {
  machine_->copy_to_device(tokens_.address(), std::as_bytes(tokens), stream);
}

void Model::forward(Engine& engine, std::size_t rows, NativeStream stream) {
  const Pass pass{engine, rows, stream};
  wait(pass, kWte, 2);
  queue_embed(pass);
  for (std::size_t block = 0; block < shape_.layers; ++block) {
    wait(pass, index(block, kGain1), kBlockParameters);
    queue_block(pass, block, true);
  }
  wait(pass, last_gain(), 2);
  queue_normal(pass, {streams_.back(), last_gain(), gradient_wide_});
}

void Model::loss(Engine& engine, std::size_t rows, double loss_scale, double* loss,
                 NativeStream stream) {
  const Pass pass{engine, rows, stream};
  queue_loss(pass, loss_scale);
  machine_->copy_to_host(std::as_writable_bytes(std::span(loss, 1)), loss_.address(), stream);
  if (loss_scale > 0.0) queue_table_gradient(pass);
}

void Model::backward(Engine& engine, std::size_t rows, NativeStream stream) {
  const Pass pass{engine, rows, stream};
  queue_normal_backward(pass, {streams_.back(), last_gain(), gradient_wide_}, true);
  for (std::size_t block = shape_.layers; block-- > 0;) {
    // The last block's inside is still there.
    if (options_.checkpointing && block + 1 < shape_.layers) queue_block(pass, block, false);
    queue_block_backward(pass, block);
  }
  claim(pass, kWpe, 1);
  queue_embed_backward(pass);
  hand_out(pass, kWpe, 1);
  hand_out(pass, kWte, 1);
}

void Model::copy_logits(std::size_t row, std::size_t position, std::span<float> out,
                        NativeStream stream) {
  const std::size_t at = row * shape_.context + position;
  launch(stream, {"logits", product_flops(1, shape_.width, shape_.vocab)}, [this, at](View& view) {
    const std::size_t width = shape_.width;
    ops_->logits(
        {.width = width,
         .vocab = shape_.vocab,
         .h = view.as<const Half>(gradient_wide_.address(), (at + 1) * width).subspan(at * width),
         .wte = weight(view, kWte),
         .out = view.as<float>(logits_.address(), shape_.vocab)});
  });
  machine_->copy_to_host(std::as_writable_bytes(out), logits_.address(), stream);
}

// --- the engine ---------------------------------------------------------------------------------

void Model::wait(const Pass& pass, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) {
    pass.engine.wait(parameters_[i].id, pass.stream);
  }
}

void Model::claim(const Pass& pass, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) {
    Slot& slot = slots_[parameters_[i].slot];
    if (slot.owner != nullptr) pass.engine.wait_gradient_taken(slot.owner->id, pass.stream);
    slot.owner = nullptr;
  }
}

void Model::hand_out(const Pass& pass, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) {
    Slot& slot = slots_[parameters_[i].slot];
    slot.owner = &parameters_[i];
    pass.engine.gradient_ready(parameters_[i].id, slot.buffer.address(), pass.stream);
  }
}

// --- forward ------------------------------------------------------------------------------------

void Model::queue_embed(const Pass& pass) {
  launch(pass.stream, {"embed"}, [this, rows = pass.rows](View& view) {
    ops_->embed_forward({.tokens = tokens(view, rows),
                         .width = shape_.width,
                         .wte = weight(view, kWte),
                         .wpe = weight(view, kWpe),
                         .out = halves_of(view, streams_[0], rows, 1)});
  });
}

void Model::queue_block(const Pass& pass, std::size_t block, bool output) {
  const std::size_t c = shape_.width;
  const Inside& in = inside(block);
  const DeviceBuffer& x = streams_[block];
  queue_normal(pass, {x, index(block, kGain1), in.normal1});
  queue_linear(pass, {in.normal1, index(block, kQkvWeight), c, 3 * c, in.qkv});
  queue_attention(pass, in);
  queue_linear(pass, {in.attended, index(block, kProjectWeight), c, c, in.middle, &x});
  queue_normal(pass, {in.middle, index(block, kGain2), in.normal2});
  queue_linear(pass, {in.normal2, index(block, kUpWeight), c, 4 * c, in.up});
  launch(pass.stream, {"gelu"}, [this, &in, rows = pass.rows](View& view) {
    ops_->gelu_forward(
        {.x = halves_of(view, in.up, rows, 4), .y = halves_of(view, in.active, rows, 4)});
  });
  if (!output) return;
  queue_linear(pass,
               {in.active, index(block, kDownWeight), 4 * c, c, streams_[block + 1], &in.middle});
}

void Model::queue_normal(const Pass& pass, const NormalCall& call) {
  launch(pass.stream, {"layer norm"}, [this, call, rows = pass.rows](View& view) {
    ops_->layernorm_forward({.shape = {shape_.positions(rows), shape_.width},
                             .x = halves_of(view, call.x, rows, 1),
                             .gain = weight(view, call.gain),
                             .bias = weight(view, call.gain + 1),
                             .y = halves_of(view, call.y, rows, 1)});
  });
}

void Model::queue_linear(const Pass& pass, const LinearCall& call) {
  const std::size_t n = shape_.positions(pass.rows);
  launch(pass.stream, {"linear", product_flops(n, call.in, call.out)}, [this, call, n](View& view) {
    LinearForward k{.shape = {n, call.in, call.out},
                    .x = view.as<const Half>(call.x.address(), n * call.in),
                    .w = weight(view, call.weight),
                    .b = weight(view, call.weight + 1),
                    .residual = {},
                    .y = view.as<Half>(call.y.address(), n * call.out)};
    if (call.residual != nullptr) {
      k.residual = view.as<const Half>(call.residual->address(), n * call.out);
    }
    ops_->linear_forward(k);
  });
}

AttentionShape Model::attention_shape(std::size_t rows) const {
  return {rows, shape_.context, shape_.heads, shape_.head_width()};
}

void Model::queue_attention(const Pass& pass, const Inside& in) {
  // Half the scores are seen: two products of context x context by the width of a head.
  const double flops = product_flops(shape_.positions(pass.rows), shape_.context, shape_.width);
  launch(pass.stream, {"attention", flops}, [this, &in, rows = pass.rows](View& view) {
    ops_->attention_forward({.shape = attention_shape(rows),
                             .qkv = halves_of(view, in.qkv, rows, 3),
                             .out = halves_of(view, in.attended, rows, 1)});
  });
}

// --- loss ---------------------------------------------------------------------------------------

void Model::queue_loss(const Pass& pass, double loss_scale) {
  const std::size_t n = shape_.positions(pass.rows);
  gradient_scale_ = static_cast<float>(loss_scale / static_cast<double>(n));
  const double products = loss_scale > 0.0 ? 2.0 : 1.0;
  launch(pass.stream, {"loss", products * product_flops(n, shape_.width, shape_.vocab)},
         [this, rows = pass.rows, n, scale = gradient_scale_](View& view) {
           LossForward k{.head = head(view, rows),
                         .log_sum = view.as<float>(log_sum_.address(), n),
                         .scale = {},
                         .dh = halves_of(view, gradient_width_, rows, 1)};
           if (scale > 0.0f) k.scale = scale;
           ops_->loss_into(k, view.as<double>(loss_.address(), 1));
         });
}

void Model::queue_table_gradient(const Pass& pass) {
  const std::size_t n = shape_.positions(pass.rows);
  claim(pass, kWte, 1);
  launch(pass.stream, {"loss, table", 2.0 * product_flops(n, shape_.width, shape_.vocab)},
         [this, rows = pass.rows, n, scale = gradient_scale_](View& view) {
           ops_->loss_backward_table({.head = head(view, rows),
                                      .log_sum = view.as<const float>(log_sum_.address(), n),
                                      .scale = scale,
                                      .dwte = gradient(view, kWte)});
         });
}

// --- backward -----------------------------------------------------------------------------------

void Model::queue_block_backward(const Pass& pass, std::size_t block) {
  const std::size_t c = shape_.width;
  const Inside& in = inside(block);
  const DeviceBuffer &stream = gradient_stream_, &width = gradient_width_, &wide = gradient_wide_;
  queue_linear_backward(pass, {in.active, index(block, kDownWeight), 4 * c, c, streams_[block + 1]},
                        stream, wide);
  launch(pass.stream, {"gelu backward"}, [this, &in, rows = pass.rows](View& view) {
    const std::span<Half> gradient = halves_of(view, gradient_wide_, rows, 4);
    ops_->gelu_backward({.x = halves_of(view, in.up, rows, 4), .dy = gradient, .dx = gradient});
  });
  queue_linear_backward(pass, {in.normal2, index(block, kUpWeight), c, 4 * c, in.up}, wide, width);
  queue_normal_backward(pass, {in.middle, index(block, kGain2), in.normal2}, false);
  queue_linear_backward(pass, {in.attended, index(block, kProjectWeight), c, c, in.middle}, stream,
                        width);
  queue_attention_backward(pass, in);
  queue_linear_backward(pass, {in.normal1, index(block, kQkvWeight), c, 3 * c, in.qkv}, wide,
                        width);
  queue_normal_backward(pass, {streams_[block], index(block, kGain1), in.normal1}, false);
}

void Model::queue_normal_backward(const Pass& pass, const NormalCall& call, bool first) {
  claim(pass, call.gain, 2);
  launch(pass.stream, {"layer norm backward"}, [this, call, first, rows = pass.rows](View& view) {
    const std::span<Half> stream = halves_of(view, gradient_stream_, rows, 1);
    LayerNormBackward k{.shape = {shape_.positions(rows), shape_.width},
                        .x = halves_of(view, call.x, rows, 1),
                        .gain = weight(view, call.gain),
                        .dy = halves_of(view, gradient_width_, rows, 1),
                        .residual = {},
                        .dx = stream,
                        .dgain = gradient(view, call.gain),
                        .dbias = gradient(view, call.gain + 1)};
    if (!first) k.residual = stream;
    ops_->layernorm_backward(k);
  });
  hand_out(pass, call.gain, 2);
}

void Model::queue_linear_backward(const Pass& pass, const LinearCall& call, const DeviceBuffer& dy,
                                  const DeviceBuffer& dx) {
  const LinearShape shape{shape_.positions(pass.rows), call.in, call.out};
  const double flops = product_flops(shape.rows, shape.in, shape.out);
  claim(pass, call.weight, 2);
  launch(pass.stream, {"linear backward, weight", flops}, [this, call, shape, &dy](View& view) {
    ops_->linear_backward_weight({.shape = shape,
                                  .x = view.as<const Half>(call.x.address(), shape.rows * shape.in),
                                  .dy = view.as<const Half>(dy.address(), shape.rows * shape.out),
                                  .dw = gradient(view, call.weight),
                                  .db = gradient(view, call.weight + 1)});
  });
  launch(pass.stream, {"linear backward, input", flops}, [this, call, shape, &dy, &dx](View& view) {
    ops_->linear_backward_input({.shape = shape,
                                 .dy = view.as<const Half>(dy.address(), shape.rows * shape.out),
                                 .w = weight(view, call.weight),
                                 .dx = view.as<Half>(dx.address(), shape.rows * shape.in)});
  });
  // Behind the last reader of the weight, which an open gate may refresh from here on.
  hand_out(pass, call.weight, 2);
}

void Model::queue_attention_backward(const Pass& pass, const Inside& in) {
  const double flops =
      2.5 * product_flops(shape_.positions(pass.rows), shape_.context, shape_.width);
  launch(pass.stream, {"attention backward", flops}, [this, &in, rows = pass.rows](View& v) {
    ops_->attention_backward({.shape = attention_shape(rows),
                              .qkv = halves_of(v, in.qkv, rows, 3),
                              .dout = halves_of(v, gradient_width_, rows, 1),
                              .dqkv = halves_of(v, gradient_wide_, rows, 3)});
  });
}

void Model::queue_embed_backward(const Pass& pass) {
  launch(pass.stream, {"embed backward"}, [this, rows = pass.rows](View& view) {
    ops_->embed_backward({.tokens = tokens(view, rows),
                          .width = shape_.width,
                          .dy = halves_of(view, gradient_stream_, rows, 1),
                          .dwte = gradient(view, kWte),
                          .dwpe = gradient(view, kWpe)});
  });
}

}  // namespace gpt
