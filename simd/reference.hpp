// SPDX-License-Identifier: Apache-2.0
/// Every rule in double, for the tests. See simd/reference/common.hpp.
#pragma once

#include "simd/reference/adagrad.hpp"
#include "simd/reference/adam.hpp"
#include "simd/reference/adamw.hpp"
#include "simd/reference/lamb.hpp"
#include "simd/reference/lion.hpp"
#include "simd/reference/sgd.hpp"
