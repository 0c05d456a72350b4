// SPDX-License-Identifier: Apache-2.0
/// Every update rule there is: a line each.
#pragma once

#include <variant>

#include "simd/rules/adagrad.hpp"
#include "simd/rules/adam.hpp"
#include "simd/rules/adamw.hpp"
#include "simd/rules/lamb.hpp"
#include "simd/rules/lion.hpp"
#include "simd/rules/sgd.hpp"

namespace outboard::simd {

/// One rule's scalars for one step of one parameter.
using RuleScalars = std::variant<AdamWScalars,    //
                                 AdamScalars,     //
                                 SgdScalars,      //
                                 LionScalars,     //
                                 AdagradScalars,  //
                                 LambScalars>;

}  // namespace outboard::simd
