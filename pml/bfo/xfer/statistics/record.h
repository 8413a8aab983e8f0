// SPDX-License-Identifier: BSD-3-Clause
//
// record.h: the record of each failover (P8): how much was sent again, when, and when the record is reported.
//
// A byte that is transferred a second time is counted when a rail accepts it, or when its READ ends. It is
// not counted when it is planned, because the plan may change. Each side counts what it transferred itself.
// If one side transferred a byte in vain and the other side transfers it again, only one of the two can know
// both facts:
//
//   sent in vain, then read   the sender, when the receiver says what it has (RESTARTACK) or that it has all
//   read in vain, then sent   the receiver, when it arrives
//
// With this rule, the bytes that all processes sent and read are equal to the bytes of the applications plus
// the bytes sent again, as soon as a message is complete. When a message ends with an error, the last report
// of the other side is missing, and such bytes are not counted.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// If several rails are lost together, the record of the last one counts the bytes: no byte is in two
/// records.
template <class P>
void Engine<P>::count_resent(PeerT& p, std::uint64_t bytes, bool whole_message) {
  counters_.bytes_resent += bytes;
  if (whole_message) ++counters_.messages_resent;
  exit_work_.look_at_events();
  RailT* last = nullptr;
  for (unsigned i = 0; i < p.n_rails; ++i) {
    RailT& r = p.rails[i];
    if (r.event_open && (!last || r.event->down_ns >= last->event->down_ns)) last = &r;
  }
  if (!last) return;
  last->event->bytes_resent += bytes;
  if (whole_message) ++last->event->messages_resent;
}

template <class P>
void Engine<P>::note_resent(PeerT& p, std::uint64_t bytes, bool whole_message) {
  count_resent(p, bytes, whole_message);
  note_resumed(p);
}

template <class P>
void Engine<P>::note_resumed(PeerT& p) {
  if (p.choice.empty()) return;
  for (unsigned i = 0; i < p.n_rails; ++i)
    if (p.rails[i].event_open && p.rails[i].event->resumed_ns == 0)
      p.rails[i].event->resumed_ns = port_.now_ns();
}

// ---- at the sender of a long message

/// A rail accepted [offset, offset+n) of a long message. What a rail had accepted of it before is sent again.
template <class P>
inline void Engine<P>::note_segment(SendRequest& r, std::uint64_t offset, std::uint64_t n) {
  const std::uint64_t resent = n - r.xfer.rndv->sent_once.add(offset, offset + n);
  if (resent != 0) [[unlikely]]
    segment_resent(r, resent);
}

template <class P>
[[gnu::cold]] void Engine<P>::segment_resent(SendRequest& r, std::uint64_t bytes) {
  auto& x = r.xfer;
  x.rndv->resend_bytes -= bytes < x.rndv->resend_bytes ? bytes : x.rndv->resend_bytes;
  note_resent(*x.proc->peer, bytes, false);
}

/// A rail accepted the RNDV or RGET. In a later round only its bytes count as sent again, not the message.
template <class P>
[[gnu::always_inline]] inline void Engine<P>::note_opened(SendRequest& r) {
  auto& x = r.xfer;
  if (x.rndv->restarts != 0) return;
  if (x.rndv->opened) note_resent(*x.proc->peer, 0, true);
  x.rndv->opened = true;
}

/// RESTARTACK, and `todo` is set. In a round by RGET (`by_get`) this side sent no bytes: what the receiver
/// has gained it has read, also where this side had sent it before. What it has read counts as sent once
/// here, too.
template <class P>
[[gnu::cold]] void Engine<P>::note_received(SendRequest& r, const SendInput& in, bool by_get) {
  auto& x = r.xfer;
  const std::uint64_t here = x.rndv->sent_once.bytes() - x.rndv->sent_once.bytes_in(x.rndv->todo);
  // If the receiver has nothing else, it has the first bytes, which came with the RNDV.
  const bool read =
      by_get && (x.rndv->restarts > 1 || x.sent_before || here != x.length - x.rndv->todo.bytes());
  if (by_get) {
    if (read && here > x.rndv->received) count_resent(*x.proc->peer, here - x.rndv->received, false);
    for (unsigned i = 0; i < in.restart->n; ++i) x.rndv->sent_once.add(in.ranges[i].begin, in.ranges[i].end);
  }
  x.rndv->resend_bytes = x.rndv->sent_once.bytes_in(x.rndv->todo);
  x.rndv->received = x.rndv->sent_once.bytes() - x.rndv->resend_bytes;
}

/// The receiver has read everything that it did not have.
template <class P>
void Engine<P>::note_all_read(SendRequest& r) {
  auto& x = r.xfer;
  const std::uint64_t bytes = x.rndv->sent_once.bytes();
  if (bytes > x.rndv->received) [[unlikely]]
    count_resent(*x.proc->peer, bytes - x.rndv->received, false);
}

// ---- at its receiver

/// [begin, end) has arrived. Bytes that were here before were read again, or are a copy that the sender has
/// counted.
template <class P>
void Engine<P>::arrived(RecvRequest& r, std::uint64_t begin, std::uint64_t end, bool by_read) {
  auto& x = r.xfer;
  if (!x.rndv->read_failed.empty()) [[unlikely]]
    found_again(r, begin, end);
  const std::uint64_t known = end - begin - x.rndv->received.add(begin, end);
  if (x.rndv->received.incomplete()) [[unlikely]]
    no_memory(*x.proc->peer, sizeof(Range));
  if (by_read && known != 0) [[unlikely]]
    count_resent(*x.proc->peer, known, false);
}

template <class P>
[[gnu::cold]] void Engine<P>::found_again(RecvRequest& r, std::uint64_t begin, std::uint64_t end) {
  auto& x = r.xfer;
  count_resent(*x.proc->peer, x.rndv->read_failed.bytes_in(begin, end), false);
  x.rndv->read_failed.remove(begin, end);
}

/// A READ ended, and it is unknown whether it was executed.
template <class P>
[[gnu::cold]] void Engine<P>::read_in_vain(RecvRequest& r, std::uint64_t begin, std::uint64_t end) {
  auto& x = r.xfer;
  count_resent(*x.proc->peer,
               x.rndv->read_failed.bytes_in(begin, end) + x.rndv->received.bytes_in(begin, end), false);
  x.rndv->read_failed.add(begin, end);
  for (std::uint32_t i = 0; i < x.rndv->received.count(); ++i)
    x.rndv->read_failed.remove(x.rndv->received[i].begin, x.rndv->received[i].end);
}

// ---- the record

template <class P>
void Engine<P>::note_restart(PeerT& p) {
  for (unsigned i = 0; i < p.n_rails; ++i)
    if (p.rails[i].event_open) ++p.rails[i].event->restarts;
}

template <class P>
typename Engine<P>::Waiting Engine<P>::waiting_again(const PeerT& p) const {
  Waiting w;
  const auto message = [&w](std::uint64_t bytes) {
    w.bytes += bytes;
    ++w.messages;
  };
  const auto eager = [&](const SendRequest& r) {
    if (r.xfer.protocol == Protocol::kEager && r.xfer.sent_before) message(r.xfer.length);
  };
  const auto stored = [&](const void* bytes, std::size_t size) {
    const std::uint8_t type = *static_cast<const std::uint8_t*>(bytes);
    if (type == static_cast<std::uint8_t>(MsgType::kMatch)) message(stored_payload(type, size));
  };
  for (SendRequest* r = p.backlog.ready_sends.front(); r; r = p.backlog.ready_sends.next(r)) eager(*r);
  for (SendRequest* r = p.backlog.unnamed.front(); r; r = p.backlog.unnamed.next(r)) eager(*r);
  p.backlog.each_stored(stored);
  for (SendRequest* r = p.live_sends.front(); r; r = p.live_sends.next(r)) {
    const auto& x = r->xfer;
    if (x.phase == SendPhase::kOpening || x.phase == SendPhase::kSending) w.bytes += x.rndv->resend_bytes;
    if (x.phase == SendPhase::kOpening && x.rndv->restarts == 0 && x.rndv->opened &&
        (x.pending & kPendingStart))
      message(x.rndv->sent_once.bytes());
  }
  for (RecvRequest* r = p.live_recvs.front(); r; r = p.live_recvs.next(r))
    if (r->xfer.phase == RecvPhase::kReceiving) w.bytes += r->xfer.rndv->read_failed.bytes();
  return w;
}

/// The record of a failover is complete when the rail is closed, no request of the peer is in a restart, and
/// everything that has to be sent again was sent or waits for a rail. A record that waits only for the last
/// condition needs no clock: it is looked at whenever the engine is left (emit_pending).
template <class P>
void Engine<P>::emit_events(PeerT& p, bool now) {
  bool open = false;
  for (unsigned i = 0; i < p.n_rails; ++i) open = open || p.rails[i].event_open;
  if (!open) return;
  const Waiting waiting = waiting_again(p);
  const bool moving = !p.choice.empty() && p.choice[0].usable(p.choice[0].name.epoch);
  bool busy = false;
  for (SendRequest* s = p.live_sends.front(); s && !busy; s = p.live_sends.next(s))
    busy = s->xfer.phase == SendPhase::kDraining || s->xfer.phase == SendPhase::kNotified;
  for (RecvRequest* q = p.live_recvs.front(); q && !busy; q = p.live_recvs.next(q))
    busy = q->xfer.phase == RecvPhase::kAsking || q->xfer.phase == RecvPhase::kQuiescing ||
           q->xfer.phase == RecvPhase::kQuiesced;
  for (unsigned i = 0; i < p.n_rails; ++i) {
    RailT& r = p.rails[i];
    if (!r.event_open || (!now && (busy || r.event->closed_ns == 0))) continue;
    r.event_pending = !now && moving && !waiting.none();
    if (r.event_pending)
      exit_work_.set_events_pending(true);
    else
      emit_event(r, waiting);
  }
}

/// What a record waited for may have been sent.
template <class P>
[[gnu::cold]] void Engine<P>::emit_pending() {
  exit_work_.set_events_pending(false);
  for (PeerT* p = peers_; p; p = p->next) {
    bool any = false;
    for (unsigned i = 0; i < p->n_rails; ++i)
      any = any || (p->rails[i].event_open && p->rails[i].event_pending);
    if (any) emit_events(*p, false);
    for (unsigned i = 0; i < p->n_rails; ++i)
      if (p->rails[i].event_open && p->rails[i].event_pending) exit_work_.set_events_pending(true);
  }
}

template <class P>
void Engine<P>::emit_event(RailT& r, const Waiting& waiting) {
  r.event_open = false;
  r.event->bytes_waiting = waiting.bytes;
  r.event->messages_waiting = waiting.messages;
  r.event->duplicates_dropped = counters_.duplicates - r.event->duplicates_dropped;
  r.event->rails_left = r.peer->choice.size();
  port_.emit(*r.event);
}

}  // namespace bfo::xfer
