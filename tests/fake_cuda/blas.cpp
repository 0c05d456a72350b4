// SPDX-License-Identifier: Apache-2.0
// A stand-in for libcublasLt: plain products on the stand-in's device, FP32 sums in order.
#include <cublasLt.h>

#include <cstring>
#include <vector>

#include "fake_cuda/fake_cuda.hpp"
#include "outboard/half.hpp"

namespace {

using outboard::sim::KernelView;

/// One matrix, column by column.
struct Layout {
  cudaDataType type;
  std::uint64_t rows, cols;
  std::int64_t stride;
};
struct Product {
  int a_op = CUBLAS_OP_N, b_op = CUBLAS_OP_N;
  int epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};

template <class T>
T* elements(KernelView& view, const void* address, std::uint64_t count) {
  return static_cast<T*>(outboard::fake_cuda::bytes_of(view, address, count * sizeof(T)));
}

std::vector<float> read(KernelView& view, const void* from, const Layout& layout) {
  const std::uint64_t elems = layout.rows * layout.cols;
  std::vector<float> values(elems);
  if (layout.type == CUDA_R_32F) {
    std::memcpy(values.data(), elements<float>(view, from, elems), elems * sizeof(float));
    return values;
  }
  const auto* const halves = elements<std::uint16_t>(view, from, elems);
  for (std::uint64_t i = 0; i < elems; ++i) values[i] = outboard::half_to_float(halves[i]);
  return values;
}

void write(KernelView& view, void* to, const Layout& layout, const std::vector<float>& values) {
  if (layout.type == CUDA_R_32F) {
    std::memcpy(elements<float>(view, to, values.size()), values.data(),
                values.size() * sizeof(float));
    return;
  }
  auto* const halves = elements<std::uint16_t>(view, to, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) halves[i] = outboard::half_from_float(values[i]);
}

/// As depth x cols, column by column, whatever it is stored as.
std::vector<float> turned(const std::vector<float>& values, const Layout& layout, bool turn) {
  if (!turn) return values;
  std::vector<float> out(values.size());
  for (std::uint64_t c = 0; c < layout.cols; ++c) {
    for (std::uint64_t r = 0; r < layout.rows; ++r) {
      out[r * layout.cols + c] = values[c * layout.rows + r];
    }
  }
  return out;
}

struct Call {
  Product product;
  Layout a, b, c;
  float alpha, beta;
  const void *a_at, *b_at, *c_in;
  void* c_out;

  void operator()(KernelView& view) const {
    const std::vector<float> left = turned(read(view, a_at, a), a, product.a_op == CUBLAS_OP_T);
    const std::vector<float> right = turned(read(view, b_at, b), b, product.b_op == CUBLAS_OP_T);
    const std::uint64_t depth = product.a_op == CUBLAS_OP_T ? a.rows : a.cols;
    std::vector<float> out(c.rows * c.cols, 0.0f);
    for (std::uint64_t col = 0; col < c.cols; ++col) {
      float* const to = out.data() + col * c.rows;
      for (std::uint64_t d = 0; d < depth; ++d) {
        const float factor = right[col * depth + d];
        const float* const from = left.data() + d * c.rows;
        for (std::uint64_t r = 0; r < c.rows; ++r) to[r] += from[r] * factor;
      }
    }
    const std::vector<float> before = beta == 0.0f ? std::vector<float>{} : read(view, c_in, c);
    const Layout one_column{CUDA_R_16F, c.rows, 1, 0};
    const bool biased = product.epilogue == CUBLASLT_EPILOGUE_BIAS;
    const std::vector<float> bias =
        biased ? read(view, product.bias, one_column) : std::vector<float>{};
    for (std::uint64_t i = 0; i < out.size(); ++i) {
      out[i] *= alpha;
      if (beta != 0.0f) out[i] += beta * before[i];
      if (biased) out[i] += bias[i % c.rows];
    }
    write(view, c_out, c, out);
  }
};

template <class T, class Handle>
T& behind(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete &behind<Product>(product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  auto& to = behind<Product>(product);
  const auto copy = [&](auto& field) {
    if (bytes != sizeof(field)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return copy(to.a_op);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return copy(to.b_op);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return copy(to.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return copy(to.bias);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t cols,
                                          std::int64_t stride) {
  const bool known = type == CUDA_R_16F || type == CUDA_R_32F;
  if (!known || stride != static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_NOT_SUPPORTED;
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, cols, stride});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &behind<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<int*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t /*preference*/,
                                                    cublasLtMatmulPreferenceAttributes_t /*which*/,
                                                    const void* /*value*/, std::size_t /*bytes*/) {
  return CUBLAS_STATUS_SUCCESS;
}
/// Products whose sizes do not go together have no way to be made.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/,
                                              cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t /*d*/,
                                              cublasLtMatmulPreference_t /*preference*/, int wanted,
                                              cublasLtMatmulHeuristicResult_t found[], int* count) {
  const auto& of = behind<Product>(product);
  const auto &left = behind<Layout>(a), &right = behind<Layout>(b), &out = behind<Layout>(c);
  const bool a_turned = of.a_op == CUBLAS_OP_T, b_turned = of.b_op == CUBLAS_OP_T;
  const bool fit = (a_turned ? left.cols : left.rows) == out.rows &&
                   (b_turned ? right.rows : right.cols) == out.cols &&
                   (a_turned ? left.rows : left.cols) == (b_turned ? right.cols : right.rows);
  *count = fit && wanted > 0 ? 1 : 0;
  if (*count == 1) found[0] = {};
  return fit ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t product,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t /*d_layout*/,
                              const cublasLtMatmulAlgo_t* /*algorithm*/, void* /*workspace*/,
                              std::size_t /*workspace_bytes*/, cudaStream_t stream) {
  const Call call{behind<Product>(product),
                  behind<Layout>(a_layout),
                  behind<Layout>(b_layout),
                  behind<Layout>(c_layout),
                  *static_cast<const float*>(alpha),
                  *static_cast<const float*>(beta),
                  a,
                  b,
                  c,
                  d};
  outboard::fake_cuda::launch(0, reinterpret_cast<std::uintptr_t>(stream),
                              outboard::sim::Duration{0}, call);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
