// SPDX-License-Identifier: BSD-3-Clause
//
// Receive queues: posting to RQ and SRQ by the owner, taking by whoever delivers a message.
#pragma once

#include <infiniband/verbs.h>

#include "contrib/softhca/engine/deferred_actions.h"

namespace bfo::softhca {

/// ibv_post_recv / ibv_post_srq_recv on shared memory. Return 0 or an errno and set *bad. Owner, any thread.
int post_recv(Fabric& fabric, QpEntry& qp, ibv_recv_wr* list, ibv_recv_wr** bad);
int post_srq_recv(Fabric& fabric, SrqEntry& srq, ibv_recv_wr* list, ibv_recv_wr** bad);

/// Makes qp.taken hold a receive request, from RQ or SRQ; false when there is none. Holds qp.resp_lock.
bool take_recv(Fabric& fabric, QpEntry& qp, DeferredActions& deferred);

}  // namespace bfo::softhca
