// SPDX-License-Identifier: BSD-3-Clause
//
// rndv_copy.h: rendezvous: RNDV and its answers, and the copy protocol (RNDV, ACK, FRAG over all rails).
//
//   S: RNDV (with the first bytes)  ->  R matches
//   R: ACK (names its request)      ->  S
//   S: FRAG FRAG FRAG ... striped over all usable rails; complete when all were delivered
//   R: complete when the union of what arrived covers what fits
//
// Every FRAG carries the round in the receiver's name, so a FRAG of an earlier round is dropped before it
// touches the buffer. The payload passes through the BTL's buffers, so no fence is needed.
#pragma once

#include <utility>

#include "common/check.h"
#include "pml/bfo/xfer/moves/plan.h"
#include "pml/bfo/xfer/moves/trace_plan.h"
#include "pml/bfo/xfer/moves/transfers.h"
#include "pml/bfo/xfer/moves/transfer.h"

namespace bfo::xfer {

template <class P>
struct RndvCopy {
  using E = Transfers<P>;
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;

  /// At least as long as any element of a predefined data type.
  static constexpr std::uint64_t kMinSegment = 64;

  /// Make the request a rendezvous: it gets a name and will send RNDV or RGET. False: no name is free now.
  static bool begin(E& e, SendRequest& r) {
    auto& x = r.xfer;
    auto* const rndv = e.send_rndv_pool_.take(e.base_.port);
    const Name name = rndv ? e.sends_.insert(&r) : Name();
    if (!name) [[unlikely]]
      return nameless(e, r, rndv);
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
    ++e.base_.counters.rndv_sent;
    const Peer<P>& p = *x.proc->peer;
    if (!p.active && !p.choice.empty() && e.open(r)) [[likely]]
      x.pending &= static_cast<std::uint8_t>(~kPendingStart);
    else
      e.ready(r);
    return true;
  }

  /// No name is free, or no memory: the request waits. False.
  [[gnu::cold, gnu::noinline]] static bool nameless(E& e, SendRequest& r, auto* rndv) {
    auto& x = r.xfer;
    if ((x.rndv = rndv)) e.send_rndv_pool_.give(std::exchange(x.rndv, nullptr));
    e.base_.activate(*x.proc->peer);
    return false;
  }

  /// ACK: determine what to send in this round, unless RESTARTACK did.
  static void start(E& e, SendRequest& r) {
    auto& x = r.xfer;
    x.protocol = Protocol::kCopy;
    x.rndv->exposed = 0;  // ACK certifies that the receiver does not read in this round
    if (x.rndv->restarts == 0) {
      x.rndv->todo.clear();
      x.rndv->todo.add(x.rndv->open_len, x.length);
    }
    x.rndv->undelivered = x.rndv->todo.bytes();
    if (x.rndv->undelivered == 0)
      return e.send_check(r);  // its end must not wait for what other requests have to post
    x.pending |= kPendingData;
    e.ready(r);
  }

  /// Post FRAGs on the least loaded rail that takes them, up to the depth per usable rail.
  static bool serve(E& e, SendRequest& r) {
    auto& x = r.xfer;
    Peer<P>& p = *x.proc->peer;
    std::uint32_t refused = 0;
    while (!x.rndv->todo.empty()) {
      // the next completion calls again
      if (enough_out(x.rndv->in_flight, e.base_.config.send_depth, p.choice.size())) return true;
      Rail<P>* const rail = p.choice.lightest(refused);
      if (!rail) return false;
      auto* const f = e.rails_.new_frag(FragKind::kFrag, *rail, p);
      if (!f) return false;
      const Range want = x.rndv->todo.front();
      // A data type that cannot be cut inside an element yields nothing for a short range: ask for at least a
      // whole element. The receiver drops what it has already.
      const std::uint64_t ask = want.size() < kMinSegment ? kMinSegment : want.size();
      std::size_t n = rail->limits.max_send_size - sizeof(core::FragHdr);
      if (n > ask) n = ask;
      if (n > x.length - want.begin) n = x.length - want.begin;
      if (e.base_.config.trace_plans) [[unlikely]]
        trace_plan(e.base_, p, PlanTrace::What::kFrag,
                   Moving{.length = x.length, .left = want.size(), .pieces_out = x.rndv->in_flight}, rail, n);
      const core::FragHdr h{static_cast<std::uint8_t>(core::MsgType::kFrag), 0, 0, x.rndv->peer_name.value,
                            want.begin};
      f->xfer.name = x.rndv->name;
      f->xfer.type = h.type;
      const Post post = e.base_.port.send(rail->handle, h.type, &h, sizeof h, r, want.begin, n, *f);
      if (!taken(post)) {
        e.rails_.drop(*f);
        refused |= 1u << rail->index;
        continue;
      }
      BFO_DCHECK(n > 0);
      // Bytes outside the range are extra: `undelivered` counts only what this round has to send.
      x.rndv->undelivered += n - x.rndv->todo.bytes();
      x.rndv->todo.remove(want.begin, want.begin + n);
      x.rndv->undelivered += x.rndv->todo.bytes();
      f->xfer.offset = want.begin;
      f->xfer.length = n;
      rail->inflight_bytes += n;
      ++x.rndv->in_flight;
      e.base_.counters.bytes_sent += n;
      e.base_.counters.bytes_headers += sizeof h;
      e.base_.records.note_segment(r, want.begin, n);
      if (post == Post::kCompleted) {
        --x.rndv->in_flight;
        x.rndv->undelivered -= n;
        ++x.rndv->frags;
        e.rails_.ended(*f);
        e.base_.port.frag_free(*f);
      }
    }
    x.pending &= static_cast<std::uint8_t>(~kPendingData);
    e.send_check(r);
    return true;
  }

  /// Receiver: the ACK.
  static bool serve(E& e, RecvRequest& r) {
    auto& x = r.xfer;
    const core::AckHdr h{static_cast<std::uint8_t>(core::MsgType::kAck), 0, 0, x.rndv->peer_name.value,
                         x.rndv->name.value};
    if (!e.rails_.post_control(*x.proc->peer, &h, sizeof h, FragKind::kControl, x.rndv->name, true))
      return false;
    x.pending &= static_cast<std::uint8_t>(~(kPendingStart | kPendingData));
    return true;
  }

  static void reset(E&, SendRequest& r) {
    auto& x = r.xfer;
    x.protocol = Protocol::kCopy;
    x.rndv->todo.clear();
    x.rndv->undelivered = 0;
    x.pending &= static_cast<std::uint8_t>(~(kPendingData | kPendingStart));
  }
  static void reset(E&, RecvRequest& r) {
    auto& x = r.xfer;
    x.pending &= static_cast<std::uint8_t>(~(kPendingData | kPendingStart));
  }
};

/// Post the RNDV or RGET of this round. It may be posted several times in one round; the receiver keeps one.
template <class P>
[[gnu::always_inline]] inline bool Transfers<P>::open(SendRequest& r) {
  bool refused = false;
  if (Rget<P>::open(*this, r, refused)) [[likely]] {
    if (r.xfer.rndv) base_.records.note_opened(r);  // to oneself: the request may be complete
    return true;
  }
  return !refused && open_rndv(r);
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
  h.match.type = static_cast<std::uint8_t>(MsgType::kRndv);
  h.match.flags =
      static_cast<std::uint8_t>(x.rndv->open_flags() | (put ? core::kFlagContig : core::kFlagNoRdma));
  h.length = x.length;
  h.sender = x.rndv->name.value;
  h.receiver = again ? x.rndv->peer_name.value : 0;
  const unsigned rails = rails_.for_user(p);
  for (unsigned i = 0; i < rails; ++i) {
    RailT* const rail = rails_.next_for_user(p);
    std::size_t n = 0;
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
    const Post post = base_.port.send(rail->handle, f->xfer.type, &h, sizeof h, r, 0, n, *f);
    if (!taken(post)) {
      rails_.drop(*f);
      continue;
    }
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
  matching_.set_matched(r, p, h.match, h.length);
  const bool rndv = !o.is_rget();
  const Bytes first = o.payload();
  const std::uint64_t n = first.size < x.rndv->want ? first.size : x.rndv->want;
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

// Each handler of a message returns the peer for which something may be posted now; nullptr: nobody.

template <class P>
Peer<P>* Transfers<P>::on_ack(const Arrival& a, Bytes in) {
  core::AckHdr h;
  if (!core::decode(MsgType::kAck, in, h)) {
    ++base_.counters.malformed;
    return nullptr;
  }
  SendRequest* const r = sends_.find_current(Name(h.sender), a);
  if (!r) return nullptr;
  auto& x = r->xfer;
  if (x.phase == SendPhase::kOpening) x.rndv->peer_name = Name(h.receiver);
  Rget<P>::declined(*r);
  send_event(*r, SendEvent::kAck);
  return x.proc->peer;
}

template <class P>
Peer<P>* Transfers<P>::on_frag(const Arrival& a, Bytes in) {
  core::FragHdr h;
  if (!core::decode(MsgType::kFrag, in, h)) {
    ++base_.counters.malformed;
    return nullptr;
  }
  RecvRequest* const r = recvs_.find_current(Name(h.receiver), a);
  if (!r) return nullptr;
  auto& x = r->xfer;
  const Bytes payload = in.from(sizeof h);
  if (h.offset > x.length || payload.size > x.length - h.offset) {
    ++base_.counters.malformed;
    return nullptr;
  }
  ++x.rndv->frags;
  if (x.phase == RecvPhase::kReceiving) [[likely]] {
    x.pending &= static_cast<std::uint8_t>(~kPendingStart);  // the ACK has arrived
    store_frag(*r, h.offset, payload);
    PeerT& peer = *x.proc->peer;
    recv_check(*r);
    return peer.backlog.any_recorded() ? &peer : nullptr;
  }
  RecvInput input;
  input.payload = payload;
  input.offset = h.offset;
  recv_event(*r, RecvEvent::kFrag, input);
  return x.proc->peer;
}

/// Unpack the bytes that fit and were not there before.
template <class P>
void Transfers<P>::store_frag(RecvRequest& r, std::uint64_t offset, Bytes payload) {
  auto& x = r.xfer;
  if (offset >= x.rndv->want) return;
  std::uint64_t end = offset + payload.size;
  if (end > x.rndv->want) end = x.rndv->want;
  if (x.rndv->received.covers(offset, end)) {
    if (end > offset) ++base_.counters.duplicates;
    return;
  }
  base_.port.unpack(r, offset, payload.data, end - offset);
  arrived(r, offset, end, false);
}

}  // namespace bfo::xfer
