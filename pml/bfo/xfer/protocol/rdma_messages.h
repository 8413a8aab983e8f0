// SPDX-License-Identifier: BSD-3-Clause
//
// rdma_messages.h: PUT and FIN come in: which request they name, and whether they can be true. FIN ends a get
// at its sender (rget.h), or a grant at the receiver (rput.h, single.h).
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

template <class P>
void Engine<P>::on_put(const Arrival& a, Bytes in) {
  core::PutHdr h;
  if (!core::decode_put(in, h)) {
    ++base_.counters.malformed;
    return;
  }
  SendRequest* const r = sends_.find_here(Name(h.sender), a);
  if (!r) return;
  auto& x = r->xfer;
  if (h.offset + h.length > x.length || h.length == 0 || h.grant == 0 || h.total > x.length ||
      h.length > h.total) {
    ++base_.counters.malformed;
    return;
  }
  if (x.phase == SendPhase::kOpening) x.rndv->peer_name = Name(h.receiver);
  Rget<P>::declined(*r);
  SendInput input;
  input.put = &h;
  input.arrival = &a;
  send_event(*r, SendEvent::kPut, input);
  flush(*x.proc->peer);
}

template <class P>
void Engine<P>::on_fin(const Arrival& a, Bytes in) {
  core::FinHdr h;
  if (!core::decode(MsgType::kFin, in, h)) {
    ++base_.counters.malformed;
    return;
  }
  if (h.to_send) {
    SendRequest* const r = sends_.find_here(Name(h.sender), a);
    if (!r) return;
    PeerT& peer = *r->xfer.proc->peer;
    peer.choice.set_keeps_up((h.flags & core::kFlagKeepsUp) != 0);
    if (Rget<P>::ends_in_first_round(*this, *r)) return flush(peer);
    SendInput input;
    input.all_read = true;
    send_event(*r, SendEvent::kFin, input);
    flush(peer);
    return;
  }
  RecvRequest* const r = recvs_.find_here(Name(h.receiver), a);
  if (!r) return;
  PeerT& peer = *r->xfer.proc->peer;
  if (Single<P>::written(*this, *r, h, a)) return flush(peer);
  RecvInput input;
  input.grant = h.grant;
  input.arrival = &a;
  recv_event(*r, (h.flags & core::kFlagFail) ? RecvEvent::kFinRefused : RecvEvent::kFin, input);
  flush(peer);
}

}  // namespace bfo::xfer
