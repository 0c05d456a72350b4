// SPDX-License-Identifier: Apache-2.0
#include "products.hpp"

#include <stdexcept>

namespace gpt::cuda {

Products::Products(void* workspace) : blas_(blas()), workspace_(workspace) {
  Blas::require(blas_.create(&handle_), "cublasLtCreate");
}

Products::~Products() {
  for (auto& [key, plan] : plans_) {
    if (plan.product != nullptr) (void)blas_.product_destroy(plan.product);
    for (cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.c}) {
      if (layout != nullptr) (void)blas_.layout_destroy(layout);
    }
  }
  (void)blas_.destroy(handle_);
}

/// Row-major matrices are the transposes of column-major ones: c' = b' a'.
void Products::make(const Product& p, Plan& plan) {
  Blas::require(blas_.product_create(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                "cublasLtMatmulDescCreate");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    Blas::require(blas_.product_set(plan.product, attribute, &value, sizeof(value)),
                  "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  const auto layout = [&](cublasLtMatrixLayout_t& made, cudaDataType type, std::size_t rows,
                          std::size_t cols) {
    Blas::require(blas_.layout_create(&made, type, rows, cols, static_cast<std::int64_t>(rows)),
                  "cublasLtMatrixLayoutCreate");
  };
  // As they are stored, column by column.
  layout(plan.a, CUDA_R_16F, p.b_transposed ? p.depth : p.cols, p.b_transposed ? p.cols : p.depth);
  layout(plan.b, CUDA_R_16F, p.a_transposed ? p.rows : p.depth, p.a_transposed ? p.depth : p.rows);
  layout(plan.c, p.fp32 ? CUDA_R_32F : CUDA_R_16F, p.cols, p.rows);
  choose(plan);
}

void Products::choose(Plan& plan) {
  cublasLtMatmulPreference_t preference = nullptr;
  Blas::require(blas_.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  const std::size_t room = kWorkspaceBytes;
  // Parts of a sum are added in FP32, whatever the result is stored as.
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cublasStatus_t status = blas_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &room, sizeof(room));
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = blas_.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                  &reductions, sizeof(reductions));
  }
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = blas_.choose(handle_, plan.product, plan.a, plan.b, plan.c, plan.c, preference, 1,
                          &found, &count);
  }
  (void)blas_.preference_destroy(preference);
  Blas::require(status, "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0) throw std::runtime_error("cublasLtMatmulAlgoGetHeuristic: no way was found");
  plan.algorithm = found.algo;
}

Products::Plan& Products::plan_of(const Product& p) {
  const Key key{p.rows,         p.cols, p.depth,           p.a_transposed,
                p.b_transposed, p.fp32, p.bias != nullptr, p.c_in != nullptr};
  const auto [at, is_new] = plans_.try_emplace(key);
  if (is_new) make(p, at->second);
  return at->second;
}

void Products::queue(const Product& p, CUstream stream) {
  Plan& plan = plan_of(p);
  if (p.bias != nullptr) {
    Blas::require(
        blas_.product_set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof(p.bias)),
        "cublasLtMatmulDescSetAttribute");
  }
  const float one = 1.0f;
  const float keep = p.c_in == nullptr ? 0.0f : 1.0f;
  Blas::require(
      blas_.multiply(handle_, plan.product, &one, p.b, plan.a, p.a, plan.b, &keep,
                     p.c_in == nullptr ? p.c : p.c_in, plan.c, p.c, plan.c, &plan.algorithm,
                     workspace_, kWorkspaceBytes, reinterpret_cast<cudaStream_t>(stream)),
      "cublasLtMatmul");
}

}  // namespace gpt::cuda
