// SPDX-License-Identifier: BSD-3-Clause
//
// Memory windows: binding and invalidating them, as local operations of the send queue.
#pragma once

#include <infiniband/verbs.h>

#include "contrib/softhca/engine/deferred_actions.h"

namespace bfo::softhca {

/// Turns an IBV_WR_BIND_MW request into `wqe`. 0 or an errno.
int fill_bind(Wqe& wqe, const ibv_send_wr& request);

/// Executes BIND_MW or LOCAL_INV. Holds sq_lock.
ibv_wc_status perform_local(Fabric& fabric, QpEntry& qp, const Wqe& wqe);

}  // namespace bfo::softhca
