// SPDX-License-Identifier: BSD-3-Clause
//
// sending.h: messages that are stored until they are delivered (stored.h), and what the user sends: which
// rail takes it, and whether it has to wait (order.h). Eager messages take one rail; longer ones of a sender
// that is ahead of its peer take the usable rails in turn, a run of messages each (rail_choice.h).
#pragma once

#include "pml/bfo/xfer/rails/rails.h"

namespace bfo::xfer {

/// What is not a short message, or comes while the preferred rail has no room. nullptr: the message has to
/// wait (order.h), or there is no rail.
template <class P>
Rail<P>* Rails<P>::next_spread(PeerT& p, size_t length) {
  if (p.backlog.completion_waits()) [[unlikely]]
    return nullptr;
  if (p.completions.any()) [[unlikely]]
    return next_behind(p, length);
  return p.choice.spread(length, base_.config.short_limit);
}

/// Messages that end a send of `p` were under way when this was looked at last.
template <class P>
[[gnu::noinline]] Rail<P>* Rails<P>::next_behind(PeerT& p, size_t length) {
  return brief_ended(p) ? p.choice.spread(length, base_.config.short_limit) : p.completions.rail();
}

/// Send a control message that cannot be derived from the state of a request. Its bytes are stored until it
/// is delivered, and sent again unchanged on another rail. All such messages are idempotent. nullptr: it has
/// no record yet, or there was no memory.
template <class P>
[[gnu::noinline]] typename P::Frag* Rails<P>::send_stored(PeerT& p, const void* bytes, size_t len,
                                                          RailT* pinned, uint32_t epoch) {
  if (p.standing.ended() || p.standing.failing()) return nullptr;
  base_.activate(p);  // the caller may not flush
  if (completes_send(bytes)) p.choice.prefer(nullptr);
  Frag* record = nullptr;
  switch (stored_.keep(p, {bytes, len, pinned, epoch}, record)) {
    case StoredMessages<P>::Kept::kYes:
      break;
    case StoredMessages<P>::Kept::kTooMany:
      base_.failing.too_much(p, PeerLoss::Limit::kAnswers, p.backlog.answers());
      break;
    case StoredMessages<P>::Kept::kNoMemory:
      base_.failing.no_memory(p, len);
      break;
  }
  return record;
}

/// Post the stored messages that wait. False: no rail takes one of them now, or there is no record for it.
/// Others that have a record go before those that wait until a slow rail is left, but for the user's
/// messages.
template <class P>
bool Rails<P>::post_stored(PeerT& p) {
  const bool held = p.choice.uneven() && !leaves_slow_rail(p);
  List<Frag, XferLink> waiting;
  bool taken = true;
  do {
    stored_.record_waiting(p);
    while (Frag* f = taken ? p.backlog.take_stored() : nullptr) {
      if (held && !f->xfer.pinned &&
          (completes_send(stored_bytes(*f)) || (keeps_order(*f) && !waiting.empty()))) {
        waiting.push_back(f);
      } else if (!post_one_stored(p, *f)) {
        p.backlog.store_first(f);
        taken = false;
      }
    }
  } while (taken && waiting.empty() && p.backlog.unrecorded() && stored_.record_waiting(p));
  const bool left = !taken || !waiting.empty() || p.backlog.unrecorded();
  while (Frag* f = waiting.back()) {
    waiting.remove(f);
    p.backlog.store_first(f);
  }
  if (left) settle_preferred(p);
  return taken;
}

/// Post a message of which there is only this one, over `rail`. Its record stays when it is not accepted.
template <class P>
Post Rails<P>::post_notice(RailT& rail, Frag& f, const void* bytes, size_t len) {
  stored_.fill(*rail.peer, f, {bytes, len});
  f.xfer.rail = &rail;
  f.xfer.epoch = rail.name.epoch;
  ++frags_out_;
  count(f);
  const Post post = base_.port.send_bytes(rail.handle, f.xfer.type, bytes, len, nullptr, 0, f);
  if (taken(post)) base_.counters.bytes_headers += len;
  if (post != Post::kAccepted) ended(f);
  return post;
}

/// A stored message came back: it is sent again.
template <class P>
void Rails<P>::store_again(PeerT& p, Frag& f) {
  base_.records.note_resumed(p);
  if (completes_send(stored_bytes(f))) p.choice.prefer(nullptr);
  p.backlog.store(&f);
  base_.activate(p);
}

/// Does a stored message end a send of the peer, or is it one of the user's, which must not overtake those?
template <class P>
bool Rails<P>::keeps_order(const Frag& f) {
  return completes_send(stored_bytes(f)) || f.xfer.type == static_cast<uint8_t>(core::MsgType::kMatch);
}

/// Post a stored message that waits. False: no rail takes it now.
template <class P>
bool Rails<P>::post_one_stored(PeerT& p, Frag& f) {
  auto& x = f.xfer;
  const void* const data = stored_bytes(f);
  if (x.pinned && !x.rail->usable(x.epoch)) x.pinned = false;
  const bool ends = completes_send(data);
  const bool follows = p.completions.any() && keeps_order(f);
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
    count(f);
    const Post post = base_.port.send_bytes(rail->handle, x.type, data, x.stored_len, nullptr, 0, f);
    if (post != Post::kAccepted) ended(f);
    if (taken(post)) {
      ++base_.counters.control_sent;
      const uint64_t payload = is_answer(data) ? 0 : stored_payload(x.stored_len);
      base_.counters.bytes_sent += payload;
      base_.counters.bytes_headers += x.stored_len - payload;
      // An eager message is stored only when a rail has handed it back.
      if (x.type == static_cast<uint8_t>(core::MsgType::kMatch)) base_.records.note_resent(p, payload, true);
      if (post == Post::kCompleted) {
        if (x.grant >= kPing) p.backlog.ping_ends(x.grant - kPing);
        if (x.buffer) base_.port.free(x.buffer);
        base_.port.frag_free(f);
        if (ends) settle_preferred(p);
      } else if (ends) {
        completing_begins(f, *rail);
      }
      return true;
    }
    if (x.pinned || follows) return false;
  }
  return false;
}

/// Such messages follow each other, and so they would stay on a rail that turned out slow for as long as one
/// of them is under way, and this process only receives: nobody asks whether they have ended. Over a rail
/// that is far one is always under way. False: the next one waits until those have ended. Not for one that
/// moves less and has READs to move: that they have ended is seen behind these, much later than they arrive.
template <class P>
[[gnu::cold, gnu::noinline]] bool Rails<P>::leaves_slow_rail(PeerT& p) {
  if (!p.completions.any() || p.choice.swift(*p.completions.rail()) || brief_ended(p)) return true;
  const RailT& rail = *p.completions.rail();
  return rail.goodput.cost().latency_ns == 0 && rail.inflight_bytes > kTry;
}

/// Send a message that ends a send of the peer. A rail with the contract keeps the bytes, hands them back
/// when it fails, and counts what it has ended, so no fragment record is needed. Nor is one where there is
/// one rail only, because then everything is read in the order of sending.
template <class P>
void Rails<P>::send_completing(PeerT& p, const void* bytes, size_t len) {
  if (!p.choice.empty() && p.backlog.nothing_stored() && !p.standing.finalized()) [[likely]] {
    if (p.choice.uneven() && !leaves_slow_rail(p)) [[unlikely]] {
      send_stored(p, bytes, len);
      return;
    }
    RailT* const preferred = p.choice.preferred();
    RailT& rail = *(p.completions.any() ? p.completions.rail()
                    : preferred         ? preferred
                                        : p.choice.default_preferred());
    if (p.n_rails == 1 || rail.limits.failover) {
      typename P::InlineSource none{};
      if (post_brief(rail, bytes, len, none)) {
        if (p.n_rails != 1) brief_begins(p, rail);
        return;
      }
    }
  }
  send_stored(p, bytes, len);
}

/// A message of the user could take another rail: have all that end a send of the peer ended?
template <class P>
[[gnu::noinline]] bool Rails<P>::brief_ended(PeerT& p) {
  if (!p.completions.asks()) return false;
  if (!p.completions.end_brief(base_.port.work(p.completions.rail()->handle))) return false;
  settle_preferred(p);
  return true;
}

/// How many rails next_for_user() can offer: none while the user's messages have to wait.
template <class P>
unsigned Rails<P>::for_user(PeerT& p) {
  if (p.backlog.completion_waits()) return 0;
  return p.completions.any() && !brief_ended(p) ? 1 : p.choice.size();
}

}  // namespace bfo::xfer
