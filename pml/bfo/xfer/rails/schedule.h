// SPDX-License-Identifier: BSD-3-Clause
//
// schedule.h: which rail sends what, and what waits. Eager messages take one rail; longer ones of a sender
// that is ahead of its peer take the usable rails in turn, a run of messages each. A segment of a long
// message takes the rail with the least bytes in flight for its weight. This stripes by weight while rails
// are healthy, and follows their real speed when they are not. Messages of up to 1 MiB that are read are not
// cut while the rail of their header keeps up (single.h): there the processor is the limit, not the rail. A
// request that has something to send and finds no rail waits in its peer's ready list, until a rail of the
// peer has room.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// What is not a short message, or comes while the preferred rail has no room. nullptr: the message has to
/// wait (order.h), or there is no rail.
template <class P>
Rail<P>* Engine<P>::next_spread(PeerT& p, std::size_t length) {
  if (p.backlog.completion_waits()) [[unlikely]]
    return nullptr;
  if (p.completions.any() && !brief_ended(p)) [[unlikely]]
    return p.completions.rail();
  return p.choice.spread(length, config_.short_limit);
}

template <class P>
[[gnu::always_inline]] inline typename P::Frag* Engine<P>::new_frag(FragKind kind, RailT& rail, PeerT& peer) {
  Frag* const f = port_.frag_alloc();
  if (!f) [[unlikely]]
    return nullptr;
  auto& x = f->xfer;
  x.next = x.prev = nullptr;
  x.linked = false;
  x.kind = kind;
  x.type = 0;
  x.to_sender = false;
  x.pinned = false;
  x.rail = &rail;
  x.epoch = rail.name.epoch;
  x.name = Name();
  x.send = nullptr;
  x.peer = &peer;
  x.offset = 0;
  x.length = 0;
  x.grant = 0;
  x.stored_len = 0;
  x.posted_ns = 0;
  x.buffer = nullptr;
  ++frags_out_;
  return f;
}

/// Accounting for the end of a fragment. The record itself stays.
template <class P>
void Engine<P>::fragment_left(Frag& f) {
  auto& x = f.xfer;
  --frags_out_;
  if (x.kind == FragKind::kFrag || x.kind == FragKind::kWrite || x.kind == FragKind::kRead)
    x.rail->inflight_bytes -= x.length;
}

/// Send, over `rail`, a control message that the state of request `own` requires. False: the rail does not
/// take it now.
template <class P>
bool Engine<P>::post_on(RailT& rail, const void* hdr, std::size_t len, FragKind kind, Name own,
                        bool to_sender, std::uint32_t grant) {
  if (!rail.takes_control()) return false;
  Frag* const f = new_frag(kind, rail, *rail.peer);
  if (!f) return false;
  f->xfer.name = own;
  f->xfer.to_sender = to_sender;
  f->xfer.grant = grant;
  f->xfer.type = *static_cast<const std::uint8_t*>(hdr);
  const Post post = port_.send_bytes(rail.handle, f->xfer.type, hdr, len, nullptr, 0, *f);
  if (post != Post::kAccepted) {
    fragment_left(*f);
    port_.frag_free(*f);
  } else {
    ++rail.control_out;
  }
  if (!taken(post)) return false;
  ++counters_.control_sent;
  counters_.bytes_headers += len;
  return true;
}

/// Send a control message without a fragment record: the rail keeps the bytes and hands them to
/// on_sendi_failed() if it fails. False: nothing happened. A rail to oneself delivers the message inside the
/// call.
template <class P>
template <class Source>
[[gnu::always_inline]] inline bool Engine<P>::post_brief(RailT& rail, const void* hdr, std::size_t len,
                                                         Source& source) {
  direct_ = !rail.limits.failover;
  const bool sent =
      port_.sendi(rail.handle, *static_cast<const std::uint8_t*>(hdr), hdr, len, source, std::size_t{0});
  direct_ = false;
  if (!sent) return false;
  ++counters_.control_sent;
  counters_.bytes_headers += len;
  return true;
}

/// The same as post_on(), over any usable rail.
template <class P>
bool Engine<P>::post_control(PeerT& p, const void* hdr, std::size_t len, FragKind kind, Name own,
                             bool to_sender, std::uint32_t grant) {
  for (unsigned i = 0; i < p.choice.size(); ++i)
    if (post_on(*p.choice.next(), hdr, len, kind, own, to_sender, grant)) return true;
  return false;
}

/// This process's rail with that connection name, if it is usable in that epoch. conn 0 stands for
/// `without_conn`.
template <class P>
Rail<P>* Engine<P>::rail_named(PeerT& p, std::uint64_t conn, std::uint32_t epoch, RailT* without_conn) const {
  if (conn == 0) {
    if (!without_conn || without_conn->peer != &p || without_conn->name.conn != 0) return nullptr;
    return without_conn->usable(without_conn->name.epoch) ? without_conn : nullptr;
  }
  for (unsigned i = 0; i < p.n_rails; ++i)
    if (p.rails[i].name.conn == conn) return p.rails[i].usable(epoch) ? &p.rails[i] : nullptr;
  return nullptr;
}

/// Send a control message that cannot be derived from the state of a request. Its bytes are stored until it
/// is delivered, and sent again unchanged on another rail. All such messages are idempotent. nullptr: it has
/// no record yet, or there was no memory.
template <class P>
[[gnu::noinline]] typename P::Frag* Engine<P>::send_stored(PeerT& p, const void* bytes, std::size_t len,
                                                           RailT* pinned, std::uint32_t epoch) {
  if (p.standing.ended() || p.standing.failing()) return nullptr;
  activate(p);  // the caller may not flush
  if (completes_send(bytes)) p.choice.prefer(nullptr);
  Frag* record = nullptr;
  switch (stored_.keep(p, {bytes, len, pinned, epoch}, record)) {
    case StoredMessages<P>::Kept::kYes:
      break;
    case StoredMessages<P>::Kept::kTooMany:
      failing_.too_much(p, PeerLoss::Limit::kAnswers, p.backlog.answers());
      break;
    case StoredMessages<P>::Kept::kNoMemory:
      failing_.no_memory(p, len);
      break;
  }
  return record;
}

/// Post a stored message that waits. False: no rail takes it now.
template <class P>
bool Engine<P>::post_stored(PeerT& p, Frag& f) {
  auto& x = f.xfer;
  const void* const data = stored_bytes(f);
  if (x.pinned && !x.rail->usable(x.epoch)) x.pinned = false;
  const bool ends = completes_send(data);
  const bool follows = p.completions.any() && (ends || x.type == static_cast<std::uint8_t>(MsgType::kMatch));
  for (unsigned i = 0; i < p.choice.size() + (ends ? 1u : 0u); ++i) {
    RailT* const rail = x.pinned         ? x.rail
                        : follows        ? p.completions.rail()
                        : ends && i == 0 ? p.choice.default_preferred()
                                         : p.choice.next();
    if (!rail->takes_control()) {
      if (x.pinned || follows) return false;
      continue;
    }
    x.rail = rail;
    x.epoch = rail->name.epoch;
    ++frags_out_;
    ++rail->control_out;
    const Post post = port_.send_bytes(rail->handle, x.type, data, x.stored_len, nullptr, 0, f);
    if (post != Post::kAccepted) --rail->control_out;
    if (taken(post)) {
      ++counters_.control_sent;
      const std::uint64_t payload = is_answer(data) ? 0 : stored_payload(x.stored_len);
      counters_.bytes_sent += payload;
      counters_.bytes_headers += x.stored_len - payload;
      // An eager message is stored only when a rail has handed it back.
      if (x.type == static_cast<std::uint8_t>(MsgType::kMatch)) records_.note_resent(p, payload, true);
      if (post == Post::kCompleted) {
        --frags_out_;
        if (x.grant >= kPing) p.watch.ping_ends(x.grant - kPing);
        if (x.buffer) port_.free(x.buffer);
        port_.frag_free(f);
        if (ends) settle_preferred(p);
      } else if (ends) {
        completing_begins(f, *rail);
      }
      return true;
    }
    --frags_out_;
    if (x.pinned || follows) return false;
  }
  return false;
}

/// Post as much as possible of what waits for this peer. What no rail takes now stays for progress(). Without
/// a usable rail there is nothing to try; the next one calls rebuild(), which continues here.
template <class P>
void Engine<P>::flush(PeerT& p) {
  if (!p.active) return;
  if (p.choice.empty() || post_waiting(p)) agenda_.deactivate(p);
}

/// Stored messages, notices about rails, then requests. Control messages go before new data, because they
/// free resources of the peer. False: something still waits.
template <class P>
bool Engine<P>::post_waiting(PeerT& p) {
  rail_notices(p);
  if (!p.backlog.syncs.empty() && !post_syncs(p)) return false;
  do {
    stored_.record_waiting(p);
    while (Frag* f = p.backlog.take_stored()) {
      if (!post_stored(p, *f)) {
        p.backlog.store_first(f);
        settle_preferred(p);
        return false;
      }
    }
  } while (p.backlog.unrecorded() && stored_.record_waiting(p));
  if (p.backlog.unrecorded()) settle_preferred(p);
  while (RecvRequest* r = p.backlog.ready_recvs.front()) {
    p.backlog.ready_recvs.remove(r);
    if (!serve(*r)) {
      if (!r->xfer.linked) p.backlog.ready_recvs.push_front(r);
      return false;
    }
  }
  while (SendRequest* r = p.backlog.unnamed.pop_front()) {
    if (RndvCopy<P>::begin(*this, *r)) continue;
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
  // Control messages that came up meanwhile are in `stored`: by a READ that ended inside its call, or a grant
  // that was refused.
  return p.backlog.nothing_stored() && p.backlog.syncs.empty() && p.backlog.unnamed.empty() &&
         p.backlog.ready_recvs.empty();
}

/// Post what the state of a send requires. True: nothing is left that a rail could take now.
template <class P>
bool Engine<P>::serve(SendRequest& r) {
  auto& x = r.xfer;
  if (x.protocol == Protocol::kEager) return Eager<P>::serve(*this, r);
  if (x.pending & kPendingNotify) {
    if (!RestartMessages<P>::send_notify(*this, r)) return false;
    x.pending &= static_cast<std::uint8_t>(~kPendingNotify);
  }
  if (x.pending & kPendingStart) {
    if (!open(r)) return false;
    x.pending &= static_cast<std::uint8_t>(~kPendingStart);
  }
  if (!(x.pending & kPendingData)) return true;
  if (x.rndv->todo.incomplete()) [[unlikely]] {
    failing_.no_memory(*x.proc->peer, sizeof(Range));
    return true;
  }
  return x.protocol == Protocol::kPut ? Rput<P>::serve(*this, r) : RndvCopy<P>::serve(*this, r);
}

template <class P>
bool Engine<P>::serve(RecvRequest& r) {
  auto& x = r.xfer;
  if (x.pending & kPendingNotify) {
    if (!RestartMessages<P>::send_recv_err(*this, r)) return false;
    x.pending &= static_cast<std::uint8_t>(~kPendingNotify);
  }
  if (x.pending & kPendingRestartAck) {
    if (!RestartMessages<P>::send_restart_ack(*this, r)) return false;
    x.pending &= static_cast<std::uint8_t>(~kPendingRestartAck);
  }
  if (!(x.pending & (kPendingStart | kPendingData))) return true;
  if (x.rndv->todo.incomplete()) [[unlikely]] {
    failing_.no_memory(*x.proc->peer, sizeof(Range));
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
