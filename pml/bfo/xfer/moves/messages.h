// SPDX-License-Identifier: BSD-3-Clause
//
// messages.h: messages that continue a transfer come in. PUT and FIN: which request they name, and whether
// they can be true. FIN ends a get at its sender (offer.h), or a grant at the receiver (rput.h).
#pragma once

#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

template <class P>
Peer<P>* Transfers<P>::on_message(MsgType type, const Arrival& a, Bytes in, ProcT*& opened) {
  switch (type) {
    case MsgType::kFrag:
      return on_frag(a, in);
    case MsgType::kPut:
      return on_put(a, in);
    case MsgType::kAck:
      return on_ack(a, in);
    case MsgType::kRestartNotify:
      return RestartMessages<P>::on_notify(*this, a, in);
    case MsgType::kRestartAck:
      return RestartMessages<P>::on_restart_ack(*this, a, in);
    case MsgType::kRestartNack:
      return RestartMessages<P>::on_nack(*this, a, in);
    case MsgType::kRecvErr:
      return RestartMessages<P>::on_recv_err(*this, a, in);
    case MsgType::kSendDone:
      return RestartMessages<P>::on_send_done(*this, a, in);
    case MsgType::kSeqSync:
      return on_seq_sync(a, in, opened);
    default:
      ++base_.counters.malformed;
      return nullptr;
  }
}

template <class P>
Peer<P>* Transfers<P>::on_put(const Arrival& a, Bytes in) {
  core::PutHdr h;
  if (!core::decode_put(in, h)) {
    ++base_.counters.malformed;
    return nullptr;
  }
  SendRequest* const r = sends_.find_here(Name(h.sender), a);
  if (!r) return nullptr;
  auto& x = r->xfer;
  if (h.offset + h.length > x.length || h.length == 0 || h.grant == 0 || h.total > x.length ||
      h.length > h.total) {
    ++base_.counters.malformed;
    return nullptr;
  }
  if (x.phase == SendPhase::kOpening) x.rndv->peer_name = Name(h.receiver);
  Offer<P>::declined(*r);
  SendInput input;
  input.put = &h;
  input.arrival = &a;
  send_event(*r, SendEvent::kPut, input);
  return x.proc->peer;
}

template <class P>
Peer<P>* Transfers<P>::on_fin(const Arrival& a, Bytes in) {
  core::FinHdr h;
  if (!core::decode(MsgType::kFin, in, h)) {
    ++base_.counters.malformed;
    return nullptr;
  }
  if (h.to_send) {
    SendRequest* const r = sends_.find_here(Name(h.sender), a);
    if (!r) return nullptr;
    PeerT& peer = *r->xfer.proc->peer;
    peer.choice.set_keeps_up((h.flags & core::kFlagKeepsUp) != 0);
    if (peer.choice.follow((h.flags & core::kFlagUneven) != 0 ? a.rail : nullptr)) [[unlikely]]
      settle_preferred(peer);
    if (Offer<P>::ends_in_first_round(*this, *r)) return &peer;
    SendInput input;
    input.all_read = true;
    send_event(*r, SendEvent::kFin, input);
    return &peer;
  }
  RecvRequest* const r = recvs_.find_here(Name(h.receiver), a);
  if (!r) return nullptr;
  PeerT& peer = *r->xfer.proc->peer;
  // A FIN may come over another rail than the one it tells of.
  const bool first = a.rail && !a.rail->goodput.grant_has_ended();
  const LedgerEntry<P>* const l = h.rate != 0 || first ? Rput<P>::find(*r, h.grant) : nullptr;
  if (l && a.over(*l->rail, l->epoch)) {
    if ((h.flags & core::kFlagFail) == 0) a.rail->goodput.grant_ended();
    if (h.rate != 0)
      pace_.told(*a.rail, core::rate_of_code(h.rate), l->end - l->begin, (h.flags & core::kFlagAtLeast) != 0);
  }
  if (Rput<P>::whole_written(*this, *r, h, a)) return &peer;
  RecvInput input;
  input.grant = h.grant;
  input.arrival = &a;
  recv_event(*r, (h.flags & core::kFlagFail) ? RecvEvent::kFinRefused : RecvEvent::kFin, input);
  return &peer;
}

}  // namespace bfo::xfer
