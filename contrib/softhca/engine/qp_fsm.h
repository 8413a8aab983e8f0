// SPDX-License-Identifier: BSD-3-Clause
//
// The queue pair state machine: which transitions exist per service, and which attributes each needs or
// takes.
#pragma once

#include <infiniband/verbs.h>

#include <span>

namespace bfo::softhca {

/// One row: a transition of one service with its attribute masks (IBV_QP_STATE is implied).
struct Transition {
  ibv_qp_type type;
  ibv_qp_state from, to;
  int required, optional;
};

/// The table, source: InfiniBand Architecture Specification 1.3, 10.3.1 and 11.2.5.2, as verbs exposes it.
std::span<const Transition> qp_transitions();

/// True when a queue pair of `type` may go from `from` to `to` with exactly the attributes in `mask`.
bool transition_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

}  // namespace bfo::softhca
