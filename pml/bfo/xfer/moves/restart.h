// SPDX-License-Identifier: BSD-3-Clause
//
// restart.h: the restart of a transfer. Turns messages and the ends of fragments into events of the two state
// machines, and carries out their actions. The phases themselves: machine.h.
//
//   S: a fragment failed -> drain -> round r+1 -> NOTIFY(r+1, rails on which every write succeeded)
//   R: NOTIFY -> grants on those rails are over; fence the others; own READs end -> round r+1
//   R: RESTARTACK(r+1, ranges received)
//   S: RNDV or RGET with the RESTART flag (r+1) -> R answers as for a new message -> only what is missing
//      is transferred
//
// If R sees the error first it sends RECVERR(r), and S drains. If R has finished it answers RESTARTNACK. If S
// has finished it answers SENDDONE.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <utility>

#include "common/check.h"
#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

template <class P>
void Transfers<P>::send_event(SendRequest& r, SendEvent e, const SendInput& in) {
  auto& x = r.xfer;
  const auto before = x.phase;
  const uint32_t actions = machine_.step(x, e);
  count_restart(x, before);
  if (actions == Machine<P>::kIgnored)
    ++base_.counters.ignored;
  else if (actions != 0)
    send_act(r, actions, in);
}

template <class P>
void Transfers<P>::recv_event(RecvRequest& r, RecvEvent e, const RecvInput& in) {
  auto& x = r.xfer;
  const auto before = x.phase;
  const uint32_t actions = machine_.step(x, e);
  count_restart(x, before);
  if (actions == Machine<P>::kIgnored)
    ++base_.counters.ignored;
  else if (actions != 0)
    recv_act(r, actions, in);
}

template <class P>
void Transfers<P>::send_act(SendRequest& r, uint32_t actions, const SendInput& in) {
  auto& x = r.xfer;
  if (actions & (core::kSendStart | core::kSendWrite)) x.pending &= static_cast<uint8_t>(~kPendingStart);
  if (actions & core::kSendStart) RndvCopy<P>::start(*this, r);
  if (actions & core::kSendWrite) Writes<P>::grant_arrived(*this, r, *in.put, in.arrival->rail);
  if (actions & core::kSendNewRound) {
    if (x.rndv->name.round() == kLastRound) {  // rounds never wrap (H13)
      send_event(r, SendEvent::kGiveUp);
      return;
    }
    x.rndv->name = x.rndv->name.at(static_cast<Round>(x.rndv->name.round() + 1));
    ++x.rndv->restarts;
    ++base_.counters.restarts;
    RndvCopy<P>::reset(*this, r);
    Rget<P>::reset(*this, r);
    Rput<P>::reset(*this, r);
    base_.records.note_restart(*x.proc->peer);
  }
  if (actions & core::kSendNotify) {
    x.pending |= kPendingNotify;
    ready(r);
  }
  if (actions & core::kSendPlan) {
    const bool by_get = x.rndv->exposed != 0;
    x.rndv->exposed = 0;  // the receiver's READs have ended: RESTARTACK certifies it
    x.rndv->peer_name = Name(in.restart->receiver);
    x.rndv->no_rdma = x.rndv->no_rdma || (in.restart->flags & core::kFlagNoRdma);
    x.rndv->todo.clear();
    x.rndv->todo.add(0, x.length);
    for (unsigned i = 0; i < in.restart->n; ++i) x.rndv->todo.remove(in.ranges[i].begin, in.ranges[i].end);
    base_.records.note_received(r, in, by_get);
    base_.records.note_resumed(*x.proc->peer);
    x.rndv->dirty_rails = x.rndv->wrote_rails = 0;
    x.rndv->frags = 0;
    x.pending = 0;
  }
  if (actions & core::kSendOpen) {
    note_resent_header(x);
    x.pending |= kPendingStart;
    ready(r);
  }
  if (actions & core::kSendDrain) {
    RndvCopy<P>::reset(*this, r);
    Rput<P>::reset(*this, r);
    if (x.rndv->in_flight == 0) send_event(r, SendEvent::kDrained);
  }
  if (actions & core::kSendFinishOk) {
    if (in.all_read && x.rndv->exposed != 0) base_.records.note_all_read(r);
    // FIN, NACK and the ACK of the last FRAG all say that the receiver does not read any more
    x.rndv->exposed = 0;
    x.pending = 0;
    x.rndv->todo.clear();
    Rput<P>::reset(*this, r);
    send_check(r);
  }
  if (actions & core::kSendFail) {
    x.pending = 0;
    x.rndv->todo.clear();
    Rput<P>::reset(*this, r);
    x.outcome = x.proc->peer->standing.loss().outcome;
    Exposure<P>::recall(*this, r);
    ledgers_.fence_all(x.rndv->ledger);
    ledgers_.fence_unlisted(r);
    send_check(r);
  }
  if (actions & core::kSendAnswerDone) {
    stored_restart(*x.proc->peer, MsgType::kSendDone, x.outcome == Outcome::kOk ? 0 : core::kFlagFail,
                   x.identity(), x.rndv->name, x.rndv->peer_name);
  }
  if (actions & core::kSendComplete) {
    // A send that failed alone tells its receiver, which must not wait for it (H12).
    if (x.outcome != Outcome::kOk && x.rndv->peer_name && !x.proc->peer->standing.failed())
      stored_restart(*x.proc->peer, MsgType::kSendDone, core::kFlagFail, x.identity(), x.rndv->name,
                     x.rndv->peer_name);
    send_over(r);
  }
}

/// A rendezvous ends, and its name with it.
template <class P>
void Transfers<P>::send_over(SendRequest& r) {
  auto& x = r.xfer;
  auto& d = *x.rndv;
  PeerT& peer = *x.proc->peer;
  sends_.erase(d.name, x.outcome != Outcome::kOk);
  peer.live_sends.remove(&r);
  if (x.linked) peer.backlog.remove_ready(r);
  if (d.registered != Registered::kNo) base_.port.deregister(d.reg);
  base_.port.rndv_over(r);
  send_rndv_pool_.give(std::exchange(x.rndv, nullptr));
  base_.finish_send(r, x.outcome);
}

template <class P>
void Transfers<P>::recv_act(RecvRequest& r, uint32_t actions, const RecvInput& in) {
  auto& x = r.xfer;
  PeerT& peer = *x.proc->peer;
  if (actions & core::kRecvStore) store_frag(r, in.offset, in.payload);
  if (actions & core::kRecvUseGrant) Rput<P>::use_grant(*this, r, in.grant, *in.arrival);
  // An event of its own waits for the end: what else this one asks for belongs to the phase that it leads to.
  const bool ask = (actions & core::kRecvDropGrant) && Rput<P>::drop_grant(*this, r, in.grant);
  if (actions & core::kRecvCountRead) arrived(r, in.offset, in.offset + in.length, true);
  if (actions & core::kRecvReopen) {
    x.rndv->peer_name = Name(in.open->rndv().sender);
    choose_protocol(r, *in.arrival, *in.open);
    ready(r);
  }
  if (actions & core::kRecvAnswer) {
    if (in.open != nullptr && !(actions & core::kRecvReopen))
      Rget<P>::refresh(*this, r, *in.arrival, *in.open);
    x.pending |= x.protocol == Protocol::kCopy ? kPendingStart : kPendingData;
    ready(r);
  }
  if (actions & core::kRecvAsk) {
    x.pending = kPendingNotify;
    ready(r);
  }
  if (actions & core::kRecvQuiesce) RestartMessages<P>::quiesce(*this, r, in);
  if (actions & core::kRecvCertify) RestartMessages<P>::certify(*this, r, in);
  if (actions & core::kRecvNewRound) {
    x.rndv->name = x.rndv->name.at(static_cast<Round>(x.rndv->name.round() + 1));
    x.rndv->frags = 0;
    x.rndv->frags_due = 0;
    RndvCopy<P>::reset(*this, r);
    Rget<P>::reset(*this, r);
    Rput<P>::reset(*this, r);
  }
  if (actions & core::kRecvRestartAck) {
    x.pending = kPendingRestartAck;
    ready(r);
  }
  if (actions & core::kRecvSenderDone) Rput<P>::sender_done(*this, r);
  if (actions & core::kRecvFinishOk) {
    if (x.protocol == Protocol::kGet) {
      // FIN is sent when the gate opens: no READ of this process may run after the sender completes
    } else if (x.length > x.rndv->want) {
      stored_restart(peer, MsgType::kRestartNack, 0, x.identity(), x.rndv->peer_name, x.rndv->name);
    } else if (x.pending & kPendingStart) {
      const core::AckHdr h{static_cast<uint8_t>(MsgType::kAck), 0, 0, x.rndv->peer_name.value,
                           x.rndv->name.value};
      rails_.send_stored(peer, &h, sizeof h);
    }
    x.pending = 0;
    x.rndv->todo.clear();
  }
  if (actions & core::kRecvFail) {
    x.pending = 0;
    x.rndv->todo.clear();
    x.status.outcome = peer.standing.loss().outcome;
    ledgers_.fence_all(x.rndv->ledger);
  }
  if (actions & core::kRecvAnswerNack) {
    if (x.protocol == Protocol::kGet && x.rndv->ledger != nullptr)
      x.rndv->nack_pending = true;
    else
      RestartMessages<P>::answer_nack(*this, r);
  }
  if (actions & core::kRecvComplete) {
    recv_over(r);
    return;
  }
  if (ask) recv_event(r, RecvEvent::kAsk);
  if (actions &
      (core::kRecvFinishOk | core::kRecvFail | core::kRecvQuiesce | core::kRecvCertify | core::kRecvStore |
       core::kRecvUseGrant | core::kRecvDropGrant | core::kRecvCountRead | core::kRecvSenderDone))
    recv_check(r);
}

/// A rendezvous ends, and its name with it.
template <class P>
void Transfers<P>::recv_over(RecvRequest& r) {
  auto& x = r.xfer;
  PeerT& peer = *x.proc->peer;
  auto& d = *x.rndv;
  const bool failed = x.failed();
  if (d.nack_pending || failed) [[unlikely]] {  // the sender must not wait for a receive that failed (H12)
    RestartMessages<P>::answer_nack(*this, r);
  } else if (x.protocol == Protocol::kGet) {
    const uint8_t flags = static_cast<uint8_t>((Rget<P>::keeps_up(*this, r) ? core::kFlagKeepsUp : 0) |
                                               (peer.choice.uneven() ? core::kFlagUneven : 0));
    const core::FinHdr h{
        static_cast<uint8_t>(MsgType::kFin), flags, 0, d.peer_name.value, d.name.value, 0, 1};
    rails_.send_completing(peer, &h, sizeof h);
  }
  if (failed) note_failed(peer, d.peer_name);
  recvs_.erase(d.name, failed);
  peer.live_recvs.remove(&r);
  if (peer.recvs_by_sender.made()) [[unlikely]]
    leave_by_sender(peer, r);
  if (x.linked) peer.backlog.remove_ready(r);
  if (d.registered != Registered::kNo) base_.port.deregister(d.reg);
  recv_rndv_pool_.give(std::exchange(x.rndv, nullptr));
  base_.finish_recv(r);
}

/// An RNDV or RGET that continues a request: matching is over, and the name in the header decides. True: what
/// waits for the peer is to be posted.
template <class P>
bool Transfers<P>::reopen(ProcT& p, const Opened& o, const Arrival& a) {
  NameState state;
  const core::MatchHdr& h = o.match();
  const core::RndvHdr& open = o.rndv();
  const Name name(open.receiver);
  RecvRequest* const r = recvs_.find(name, a, state);
  if (!r) {
    if (state == NameState::kFinished || state == NameState::kFailed)
      stored_restart(*p.peer, MsgType::kRestartNack, state == NameState::kFailed ? core::kFlagFail : 0, h,
                     Name(open.sender), name);
    else
      ++base_.counters.malformed;
    return false;
  }
  auto& x = r->xfer;
  if (x.proc != &p || x.seq != h.seq || !x.rndv->peer_name.same_request(Name(open.sender))) {
    ++base_.counters.malformed;
    return false;
  }
  if (name.round() != x.rndv->name.round()) {
    ++(name.round() < x.rndv->name.round() ? base_.counters.stale : base_.counters.malformed);
    return false;
  }
  RecvInput in;
  in.arrival = &a;
  in.open = &o;
  recv_event(*r, RecvEvent::kReopen, in);
  return true;
}

/// An RNDV or RGET came again. True: its message is being received.
template <class P>
bool Transfers<P>::open_again(ProcT& p, const Opened& o, const Arrival& a) {
  const Name sender(o.rndv().sender);
  RecvRequest* const r = live_from(*p.peer, sender);
  if (!r || r->xfer.proc != &p) return false;
  auto& x = r->xfer;  // LIVE
  if (x.seq != o.match().seq) {
    ++base_.counters.malformed;
  } else if (sender.round() != x.rndv->name.round()) {
    ++base_.counters.stale;
  } else {
    RecvInput in;
    in.arrival = &a;
    in.open = &o;
    recv_event(*r, RecvEvent::kOpenAgain, in);
  }
  return true;
}

/// The receive that is busy with message `sender` of `p`, or nullptr. A search that passes many makes an
/// index of all; without memory for it the list is searched.
template <class P>
typename P::RecvRequest* Transfers<P>::live_from(PeerT& p, Name sender) {
  constexpr unsigned kShort = 16;
  if (p.recvs_by_sender.made()) return p.recvs_by_sender.find(sender.request());
  unsigned passed = 0;
  for (RecvRequest* r = p.live_recvs.front(); r; r = p.live_recvs.next(r)) {
    if (r->xfer.rndv->peer_name.same_request(sender)) return r;
    if (++passed == kShort && p.recvs_by_sender.make(base_.port)) {
      for (r = p.live_recvs.front(); r && p.recvs_by_sender.made(); r = p.live_recvs.next(r))
        enter_by_sender(p, *r);
      return live_from(p, sender);
    }
  }
  return nullptr;
}

template <class P>
[[gnu::cold]] void Transfers<P>::enter_by_sender(PeerT& p, RecvRequest& r) {
  if (!p.recvs_by_sender.add(base_.port, &r)) p.recvs_by_sender.drop(base_.port);
}

template <class P>
[[gnu::cold]] void Transfers<P>::leave_by_sender(PeerT& p, RecvRequest& r) {
  p.recvs_by_sender.remove(&r);
  if (p.live_recvs.empty()) p.recvs_by_sender.drop(base_.port);
}

/// The gate (P2): no access that this request granted or started can still be executed.
template <class P>
template <class X>
inline bool Transfers<P>::gate_clear(const X& x) const {
  if constexpr (requires { x.rndv->unfenced; })
    if (x.rndv->unfenced != 0 && !gate_removed()) return false;
  return gate_removed() || (x.rndv->in_flight == 0 && x.rndv->ledger == nullptr);
}

/// A test's port may remove the gate, to see that its checkers notice.
template <class P>
inline bool Transfers<P>::gate_removed() const {
  return base_.port.gate_removed();
}

/// [begin, end) of `r` is in its place.
template <class P>
void Transfers<P>::arrived(RecvRequest& r, uint64_t begin, uint64_t end, bool by_read) {
  if (!base_.records.arrived(r, begin, end, by_read)) [[unlikely]]
    base_.failing.no_memory(*r.xfer.proc->peer, sizeof(Range));
}

/// Raise the events that follow from the counters of a send.
template <class P>
void Transfers<P>::send_check(SendRequest& r) {
  auto& x = r.xfer;
  if (x.phase == SendPhase::kSending) {
    if (x.rndv->in_flight == 0 && x.rndv->undelivered == 0 && x.rndv->grants.empty()) {
      send_event(r, SendEvent::kAllDelivered);
      return;
    }
    if (!x.rndv->todo.empty()) {
      x.pending |= kPendingData;
      ready(r);
    }
    return;
  }
  if (x.phase == SendPhase::kDraining && x.rndv->in_flight == 0) {
    send_event(r, SendEvent::kDrained);
    return;
  }
  if (x.phase == SendPhase::kClosing && gate_clear(x)) send_event(r, SendEvent::kGateOpen);
}

/// Raise the events that follow from the ranges and the ledger of a receive.
template <class P>
void Transfers<P>::recv_check(RecvRequest& r) {
  auto& x = r.xfer;
  if (x.phase == RecvPhase::kIdle) return;
  if (x.phase == RecvPhase::kReceiving || x.phase == RecvPhase::kAsking || x.phase == RecvPhase::kQuiescing) {
    if (x.rndv->received.covers(0, x.rndv->want)) {
      recv_event(r, RecvEvent::kCovered);
      return;
    }
  }
  const bool clear = gate_clear(x);
  if (x.phase == RecvPhase::kQuiescing && clear && x.rndv->frags >= x.rndv->frags_due) {
    recv_event(r, RecvEvent::kQuiesced);
    return;
  }
  if (x.phase == RecvPhase::kClosing && clear) recv_event(r, RecvEvent::kGateOpen);
}

}  // namespace bfo::xfer
