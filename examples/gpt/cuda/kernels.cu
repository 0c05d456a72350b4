// SPDX-License-Identifier: Apache-2.0
// The model's kernels on a GPU: each thread's part is in bodies.hpp.
#include "bodies.hpp"

namespace {

__device__ gpt::cuda::Block block_of(float* shared) {
  return {blockIdx.x, blockDim.x, shared};
}

}  // namespace

#define GPT_KERNEL(name, Arguments, body)                                        \
  extern "C" __global__ void gpt_##name(const __grid_constant__ gpt::cuda::Arguments work) { \
    extern __shared__ float shared[];                                            \
    gpt::cuda::body(block_of(shared), work);                                     \
  }
#define GPT_ELEMENTS_KERNEL(name, Arguments, body)                               \
  extern "C" __global__ void gpt_##name(const __grid_constant__ gpt::cuda::Arguments work) { \
    extern __shared__ float shared[];                                            \
    gpt::cuda::body(block_of(shared), gridDim.x, work);                          \
  }

GPT_KERNEL(embed, EmbedArguments, embed)
GPT_KERNEL(embed_backward_table, EmbedBackwardArguments, embed_backward_table)
GPT_KERNEL(embed_backward_places, EmbedBackwardArguments, embed_backward_places)
GPT_KERNEL(normal, NormalArguments, normal)
GPT_KERNEL(normal_backward, NormalBackwardArguments, normal_backward)
GPT_KERNEL(columns, ColumnsArguments, columns)
GPT_ELEMENTS_KERNEL(gelu, GeluArguments, gelu_elements)
GPT_KERNEL(attention, AttentionArguments, attention)
GPT_KERNEL(attention_backward_query, AttentionArguments, attention_backward_query)
GPT_KERNEL(attention_backward_key, AttentionArguments, attention_backward_key)
GPT_KERNEL(loss_row, LossArguments, loss_row)
GPT_KERNEL(sum, SumArguments, sum_values)
GPT_ELEMENTS_KERNEL(narrow, NarrowArguments, narrow_elements)
