// SPDX-License-Identifier: Apache-2.0
/// Matrix products through cuBLASLt: FP16 in, FP32 sums, FP16 or FP32 out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "driver.hpp"

namespace gpt::cuda {

/// c (rows x cols, row-major) = a b + keep * c_in + bias. `a` is rows x depth, or depth x rows if
/// transposed; `b` depth x cols, or cols x depth.
struct Product {
  std::size_t rows = 0, cols = 0, depth = 0;
  bool a_transposed = false, b_transposed = false;
  const void *a = nullptr, *b = nullptr;  ///< FP16
  const void* bias = nullptr;             ///< FP16, cols of them; null: none
  const void* c_in = nullptr;             ///< as c, which it may be; null: keep is 0
  void* c = nullptr;
  bool fp32 = false;  ///< of c and c_in; without a bias
};

/// One stream at a time may use it. The first product of a shape chooses how it is made.
class Products {
 public:
  /// `workspace`: device memory of kWorkspaceBytes that outlives it.
  explicit Products(void* workspace);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  /// Queues it. @throws std::runtime_error naming the call.
  void queue(const Product& product, CUstream stream);

 private:
  using Key = std::tuple<std::size_t, std::size_t, std::size_t, bool, bool, bool, bool, bool>;
  struct Plan {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };
  [[nodiscard]] Plan& plan_of(const Product& product);
  void make(const Product& product, Plan& plan);
  void choose(Plan& plan);

  const Blas& blas_;
  void* workspace_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace gpt::cuda
