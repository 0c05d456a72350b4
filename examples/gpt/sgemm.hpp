// SPDX-License-Identifier: Apache-2.0
/// One product of FP32 matrices that are in scratch memory.
#pragma once

#include <cstddef>

namespace gpt {

/// A row-major FP32 matrix whose rows are `stride` floats apart.
struct Matrix {
  const float* values = nullptr;
  std::size_t stride = 0;
  bool transposed = false;
};

/// c (rows x cols) = scale * a b + keep * c.
struct Sgemm {
  std::size_t rows = 0, cols = 0, depth = 0;
  Matrix a, b;
  float* c = nullptr;
  std::size_t c_stride = 0;
  float scale = 1.0f;
  float keep = 0.0f;
};
/// One call of OpenBLAS, on the caller's thread.
void sgemm(const Sgemm& k);

}  // namespace gpt
