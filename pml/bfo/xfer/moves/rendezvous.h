// SPDX-License-Identifier: BSD-3-Clause
//
// rendezvous.h: how a long message begins, whichever protocol moves it: the send gets a name and posts RNDV
// or RGET; the receive that is matched with it gets one, too, and chooses the protocol.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <utility>

#include "common/check.h"
#include "pml/bfo/xfer/moves/rget.h"
#include "pml/bfo/xfer/moves/rput.h"
#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

/// Make the request a rendezvous: it gets a name and will send RNDV or RGET. False: no name is free now.
template <class P>
bool Transfers<P>::begin_rendezvous(SendRequest& r) {
  auto& x = r.xfer;
  auto* const rndv = send_rndv_pool_.take(base_.port);
  const Name name = rndv ? sends_.insert(&r) : Name();
  if (!name) [[unlikely]]
    return nameless(r, rndv);
  x.rndv = rndv;
  x.protocol = Protocol::kCopy;
  Machine<P>::begin(x);
  x.pending = kPendingStart;
  auto& d = *rndv;
  d.name = name;
  d.peer_name = Name();
  d.known = seq_before(x.seq, x.proc->confirmed);  // it was an eager message that lost its rail
  d.opened = x.sent_before;
  d.no_rdma = false;
  d.registered = Registered::kNo;
  d.unregistered = 0;
  d.in_flight = 0;
  d.frags = 0;
  d.undelivered = 0;
  d.restarts = 0;
  d.dirty_rails = 0;
  d.wrote_rails = 0;
  d.exposed = 0;
  d.unfenced = 0;
  d.open_len = x.length;
  d.received = 0;
  d.resend_bytes = 0;
  d.ledger = nullptr;
  d.todo.clear();
  BFO_DCHECK(d.grants.empty());  // the end of its last request has cleared them
  d.grants.forget_arrivals();
  d.sent_once.clear();
  if (x.sent_before) {
    d.sent_once.add(0, x.length);
    x.proc->peer->backlog.again.remove(x.length);
  }
  x.proc->peer->live_sends.push_back(&r);
  ++x.proc->peer->rendezvous;
  ++base_.counters.rndv_sent;
  const Peer<P>& p = *x.proc->peer;
  if (!p.active && !p.choice.empty() && open(r)) [[likely]]
    x.pending &= static_cast<uint8_t>(~kPendingStart);
  else
    ready(r);
  return true;
}

/// No name is free, or no memory: the request waits. False.
template <class P>
[[gnu::cold, gnu::noinline]] bool Transfers<P>::nameless(SendRequest& r, SendRndv<P>* rndv) {
  auto& x = r.xfer;
  if ((x.rndv = rndv)) send_rndv_pool_.give(std::exchange(x.rndv, nullptr));
  base_.activate(*x.proc->peer);
  return false;
}

/// Post the RNDV or RGET of this round. It may be posted several times in one round; the receiver keeps one.
template <class P>
[[gnu::always_inline]] inline bool Transfers<P>::open(SendRequest& r) {
  const auto& x = r.xfer;
  PeerT& p = *x.proc->peer;
  // A synchronous send may be short: other rails gain it nothing.
  if (!p.first_contact.over() && x.length + sizeof(core::MatchHdr) > p.eager_limit) [[unlikely]]
    if (waits_for_rails(p)) return false;
  bool refused = false;
  if (Offer<P>::open(*this, r, refused)) [[likely]] {
    if (r.xfer.rndv) base_.records.note_opened(r);  // to oneself: the request may be complete
    return true;
  }
  return !refused && open_rndv(r);
}

/// Does a message that is there now wait until more rails of `p` are up? Rails of BTLs without the contract
/// are always up. Nothing has asked for a connection if nothing was sent. All rails are asked for, because
/// the first one may be dead.
template <class P>
[[gnu::cold, gnu::noinline]] bool Transfers<P>::waits_for_rails(PeerT& p) {
  unsigned up = 0;
  unsigned coming = 0;
  for (unsigned i = 0; i < p.n_rails; ++i) {
    const RailT& rail = p.rails[i];
    up += rail.state == RailState::kUp || rail.state == RailState::kSuspect;
    coming += rail.state == RailState::kIdle || rail.state == RailState::kConnecting;
  }
  const bool waited = p.first_contact.waited();
  if (!p.first_contact.waits(up, coming, base_.port.now_ns(), base_.config.connect_wait_ns,
                             rails_.patience()))
    return false;
  for (unsigned i = 0; i < p.n_rails && !waited; ++i)
    if (p.rails[i].state == RailState::kIdle && p.rails[i].limits.failover)
      base_.port.connect(p.rails[i].handle);
  return true;
}

template <class P>
[[gnu::noinline]] bool Transfers<P>::open_rndv(SendRequest& r) {
  auto& x = r.xfer;
  PeerT& p = *x.proc->peer;
  const bool again = x.rndv->restarts != 0;
  // Data that will be written by RDMA goes directly into the receiver's buffer; first bytes would have to be
  // copied there.
  const bool put = Rput<P>::possible(*this, r);
  core::RndvHdr h{};
  h.match = x.identity();
  h.match.type = static_cast<uint8_t>(MsgType::kRndv);
  h.match.flags = static_cast<uint8_t>(x.rndv->open_flags() | (put ? core::kFlagContig : core::kFlagNoRdma));
  h.length = x.length;
  h.sender = x.rndv->name.value;
  h.receiver = again ? x.rndv->peer_name.value : 0;
  const unsigned rails = rails_.for_user(p);
  for (unsigned i = 0; i < rails; ++i) {
    RailT* const rail = rails_.next_for_user(p);
    size_t n = 0;
    if (!again && !put) {
      n = rail->limits.rndv_eager_limit - sizeof h;
      if (n > x.length) n = x.length;
    } else if (rails_.post_brief(*rail, &h, sizeof h, r)) {
      if (!again) x.rndv->open_len = 0;
      base_.records.note_opened(r);
      return true;
    }
    Frag* const f = rails_.new_frag(FragKind::kOpen, *rail, p);
    if (!f) return false;
    f->xfer.name = x.rndv->name;
    f->xfer.type = h.match.type;
    f->xfer.grant = header_number(h.match);
    f->xfer.length = n;
    if (n != 0) pace_.begin_first(*f);  // FRAGs of other messages are behind it
    const Post post = base_.port.send(rail->handle, f->xfer.type, &h, sizeof h, r, 0, n, *f);
    if (!taken(post)) {
      rails_.drop(*f);
      continue;
    }
    f->xfer.length = n;  // a data type may be cut only between elements
    rail->inflight_bytes += n;
    if (!again && n < x.rndv->open_len) x.rndv->open_len = n;
    base_.records.note_opened(r);
    if (n != 0) base_.records.note_segment(r, 0, n);
    base_.counters.bytes_sent += n;
    base_.counters.bytes_headers += sizeof h;
    ++base_.counters.control_sent;
    if (post == Post::kCompleted) {
      rails_.ended(*f);
      base_.port.frag_free(*f);
    }
    return true;
  }
  return false;
}

/// A receive was matched with a RNDV or RGET: it gets a name and answers. True: what waits for the peer is to
/// be posted.
template <class P>
[[gnu::noinline]] bool Transfers<P>::begin_recv(RecvRequest& r, ProcT& p, const Arrival& a,
                                                const core::Opened& o) {
  const core::RndvHdr& h = o.rndv();
  auto& x = r.xfer;
  PeerT& peer = *matching_.peer_of(p);
  ++peer.rendezvous;
  x.proc = &p;
  x.seq = h.match.seq;
  x.length = h.length;
  x.rndv = recv_rndv_pool_.take(base_.port);
  const Name name = x.rndv ? recvs_.insert(&r) : Name();
  if (!name) [[unlikely]] {  // no name is free, or no memory: this message fails, and its sender is notified
    if (x.rndv) recv_rndv_pool_.give(std::exchange(x.rndv, nullptr));
    matching_.set_matched(r, p, h.match, h.length);
    x.status.length = 0;
    x.status.outcome = Outcome::kNoMemory;
    stored_restart(peer, MsgType::kRestartNack, core::kFlagFail, h.match, Name(h.sender), Name());
    note_failed(peer, Name(h.sender));
    base_.finish_recv(r);
    return true;
  }
  auto& d = *x.rndv;
  d.peer_name = Name(h.sender);
  // The rounds of both sides are equal: a sender restarts only requests that are matched.
  d.name = name.at(d.peer_name.round());
  d.want = h.length < x.capacity ? h.length : x.capacity;
  d.received.clear();
  d.read_failed.clear();
  d.todo.clear();
  d.doubtful.clear();
  x.pending = 0;
  d.nack_pending = false;
  d.sender_done = false;
  d.no_rdma = false;
  d.registered = Registered::kNo;
  d.unregistered = 0;
  d.refusals = 0;
  d.n_keys = 0;
  d.in_flight = 0;
  d.frags = 0;
  d.frags_due = 0;
  d.next_grant = 1;
  d.refused = 0;
  d.total = 0;
  d.key_rail = nullptr;
  d.keep_up = false;
  d.bytes_out = 0;
  d.ledger = nullptr;
  Machine<P>::begin(x);
  peer.live_recvs.push_back(&r);
  if (peer.recvs_by_sender.made()) [[unlikely]]
    enter_by_sender(peer, r);
  matching_.set_matched(r, p, h.match, h.length);
  const bool rndv = !o.is_rget();
  const Bytes first = o.payload();
  const uint64_t n = first.size < x.rndv->want ? first.size : x.rndv->want;
  if (n != 0) arrived(r, 0, n, false);
  // The answer is sent before the first bytes are copied, so that the sender works meanwhile. If nothing else
  // is missing, the end of the request is the answer.
  if (!peer.standing.failed()) [[likely]] {
    if (!rndv && Rget<P>::read_whole(*this, r, a, o)) return false;
    if (rndv && (h.match.flags & core::kFlagContig) && Rput<P>::grant_whole(*this, r)) return false;
    choose_protocol(r, a, o);
    if (!x.rndv->received.covers(0, x.rndv->want)) serve_now(r);
    if (!x.rndv) return false;
  }
  if (n != 0) base_.port.unpack(r, 0, first.data, n);
  if (peer.standing.failed())
      [[unlikely]] {  // it came before the peer was declared failed, and is matched now
    recv_event(r, RecvEvent::kGiveUp);
    return false;
  }
  recv_check(r);
  return true;
}

/// Take protocol and keys of this round from an RNDV or RGET, and note what has to be sent.
template <class P>
void Transfers<P>::choose_protocol(RecvRequest& r, const Arrival& a, const core::Opened& o) {
  auto& x = r.xfer;
  x.protocol = Protocol::kCopy;
  x.rndv->key_rail = a.rail;
  x.rndv->todo.clear();
  const bool rdma = !x.rndv->no_rdma && !x.rndv->received.covers(0, x.rndv->want);
  if (rdma && Rget<P>::take_keys(*this, r, a, o))
    x.protocol = Protocol::kGet;
  else if (rdma && (o.match().flags & core::kFlagContig) && Rput<P>::accept(*this, r))
    x.protocol = Protocol::kPut;
  if (x.protocol != Protocol::kCopy) x.rndv->todo.assign_complement(x.rndv->received, x.rndv->want);
  if (x.protocol == Protocol::kGet) Rget<P>::align_todo(r);
  x.rndv->total = x.rndv->todo.bytes();
  x.pending |= x.protocol == Protocol::kCopy ? kPendingStart : kPendingData;
}

}  // namespace bfo::xfer
