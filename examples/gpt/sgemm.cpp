// SPDX-License-Identifier: Apache-2.0
#include "sgemm.hpp"

#include <cblas.h>

namespace gpt {
namespace {

int as_int(std::size_t value) {
  return static_cast<int>(value);
}

CBLAS_TRANSPOSE way(const Matrix& matrix) {
  return matrix.transposed ? CblasTrans : CblasNoTrans;
}

}  // namespace

void sgemm(const Sgemm& k) {
  cblas_sgemm(CblasRowMajor, way(k.a), way(k.b), as_int(k.rows), as_int(k.cols), as_int(k.depth),
              k.scale, k.a.values, as_int(k.a.stride), k.b.values, as_int(k.b.stride), k.keep, k.c,
              as_int(k.c_stride));
}

}  // namespace gpt
