// SPDX-License-Identifier: BSD-3-Clause
//
// serve.h: what the state of a request requires to be posted, and the requests of a peer that wait for that.
#pragma once

#include <utility>

#include "pml/bfo/xfer/moves/transfer.h"
#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

template <class P>
Transfers<P>::Transfers(Base<P>& base, Rails<P>& rails, Matching<P>& matching)
    : base_(base),
      rails_(rails),
      matching_(matching),
      sends_(base.counters, base.config.max_named, base.config.first_send),
      recvs_(base.counters, base.config.max_named, base.config.first_receive) {
  static_assert(Transfer<Eager<P>, Transfers> && Transfer<RndvCopy<P>, Transfers> &&
                    Transfer<Rget<P>, Transfers> && Transfer<Rput<P>, Transfers>,
                "a transfer protocol lacks reset() or serve() of a side: see transfer.h");
}

template <class P>
void Transfers<P>::forget(PeerT& p) {
  while (SendRequest* r = p.live_sends.pop_front()) {
    Rput<P>::reset(*this, *r);
    ledgers_.remove_all(r->xfer.rndv->ledger);
    send_rndv_pool_.give(std::exchange(r->xfer.rndv, nullptr));
  }
  p.recvs_by_sender.drop(base_.port);
  while (RecvRequest* r = p.live_recvs.pop_front()) {
    ledgers_.remove_all(r->xfer.rndv->ledger);
    recv_rndv_pool_.give(std::exchange(r->xfer.rndv, nullptr));
  }
}

template <class P>
void Transfers<P>::free_all() {
  send_rndv_pool_.free_all(base_.port);
  recv_rndv_pool_.free_all(base_.port);
  grant_pool_.free_all(base_.port);
  ledgers_.free_all();
}

/// Receives first, because they free resources of the peer. False: something still waits.
template <class P>
bool Transfers<P>::post_requests(PeerT& p) {
  while (RecvRequest* r = p.backlog.ready_recvs.front()) {
    p.backlog.ready_recvs.remove(r);
    if (!serve(*r)) {
      if (!r->xfer.linked) p.backlog.ready_recvs.push_front(r);
      return false;
    }
  }
  while (SendRequest* r = p.backlog.unnamed.pop_front()) {
    if (begin_rendezvous(*r)) continue;
    p.backlog.unnamed.push_front(r);
    break;
  }
  while (SendRequest* r = p.backlog.ready_sends.front()) {
    p.backlog.ready_sends.remove(r);
    if (!serve(*r)) {
      if (!r->xfer.linked) p.backlog.ready_sends.push_front(r);
      return false;
    }
  }
  return true;
}

/// Post what the state of a send requires. True: nothing is left that a rail could take now.
template <class P>
bool Transfers<P>::serve(SendRequest& r) {
  auto& x = r.xfer;
  if (x.protocol == Protocol::kEager) return Eager<P>::serve(*this, r);
  if (x.pending & kPendingNotify) {
    if (!RestartMessages<P>::send_notify(*this, r)) return false;
    x.pending &= static_cast<uint8_t>(~kPendingNotify);
  }
  if (x.pending & kPendingStart) {
    if (!open(r)) return false;
    x.pending &= static_cast<uint8_t>(~kPendingStart);
  }
  if (!(x.pending & kPendingData)) return true;
  BFO_DCHECK(x.phase == core::SendPhase::kSending);
  if (x.rndv->todo.incomplete()) [[unlikely]] {
    base_.failing.no_memory(*x.proc->peer, sizeof(Range));
    return true;
  }
  return x.protocol == Protocol::kPut ? Rput<P>::serve(*this, r) : RndvCopy<P>::serve(*this, r);
}

template <class P>
bool Transfers<P>::serve(RecvRequest& r) {
  auto& x = r.xfer;
  if (x.pending & kPendingNotify) {
    if (!RestartMessages<P>::send_recv_err(*this, r)) return false;
    x.pending &= static_cast<uint8_t>(~kPendingNotify);
  }
  if (x.pending & kPendingRestartAck) {
    if (!RestartMessages<P>::send_restart_ack(*this, r)) return false;
    x.pending &= static_cast<uint8_t>(~kPendingRestartAck);
  }
  if (!(x.pending & (kPendingStart | kPendingData))) return true;
  BFO_DCHECK(
      x.phase ==
      core::RecvPhase::kReceiving);  // in others nothing of it can be posted, and all others would wait
  if (x.rndv->todo.incomplete()) [[unlikely]] {
    base_.failing.no_memory(*x.proc->peer, sizeof(Range));
    return true;
  }
  switch (x.protocol) {
    case Protocol::kGet:
      return Rget<P>::serve(*this, r);
    case Protocol::kPut:
      return Rput<P>::serve(*this, r);
    default:
      return RndvCopy<P>::serve(*this, r);
  }
}

}  // namespace bfo::xfer
