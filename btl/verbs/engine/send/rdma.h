// SPDX-License-Identifier: BSD-3-Clause
//
// rdma.h: RDMA writes and reads through the same ring as sends, so that one order and one drain covers all.
#pragma once

#include "btl/verbs/engine/send/send.h"

namespace bfo::engine {

/// Posts `frag` (kind kPut, kGet, or kControl for a zero-byte write), always signaled. Under the lock, with
/// room. 0 or errno.
int ring_post_rdma(Endpoint& endpoint, Frag* frag);

/// Writes frag->data to the peer's memory. kRefused leaves the fragment with the caller; otherwise
/// Host::frag_done ends it, once: DELIVERED means the data is in the peer's memory.
Accepted put(Endpoint& endpoint, Frag* frag);

/// Reads the peer's memory into frag->data. As put().
Accepted get(Endpoint& endpoint, Frag* frag);

/// Posts a signaled zero-byte write on `qp` that is in no ring: probe or drain marker. 0 or errno.
int post_bare(const Endpoint& endpoint, ibv_qp* qp, uint64_t wr_id);

}  // namespace bfo::engine
