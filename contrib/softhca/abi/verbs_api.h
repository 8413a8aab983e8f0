// SPDX-License-Identifier: BSD-3-Clause
//
// <infiniband/verbs.h> for code that defines the functions it declares: its convenience macros are off.
#pragma once

#include <infiniband/verbs.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/// On every function the drop-in library exports.
#define SOFTHCA_EXPORT extern "C" __attribute__((visibility("default")))
