// SPDX-License-Identifier: Apache-2.0
/// Symbol visibility: everything is hidden except what carries OUTBOARD_API.
#pragma once

#if defined(_WIN32)
#error "Outboard supports Linux only"
#endif
#define OUTBOARD_API __attribute__((visibility("default")))
