// SPDX-License-Identifier: Apache-2.0
/// See highway.h beside it, which has what is needed of this header too.
#pragma once
