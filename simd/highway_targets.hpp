// SPDX-License-Identifier: Apache-2.0
/// Which Highway targets this room compiles. Included before any Highway header: scalar, AVX2 and
/// AVX-512 on x86, scalar, NEON and SVE on Arm, whatever -march the build asks for.
#pragma once

#define HWY_COMPILE_ALL_ATTAINABLE
// HWY_SCALAR as the baseline of every compiler; left alone, GCC and clang would choose differently.
#define HWY_BROKEN_EMU128 1
// Evaluated by Highway, after it has given these names their values. What is left out is slower
// than a kept target that the same CPU runs, or no faster.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
