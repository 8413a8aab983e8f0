// SPDX-License-Identifier: BSD-3-Clause
//
// record.h: the record of each failover (DESIGN P8): what went again and when, and when it is told.
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

template <class P>
void Engine<P>::note_resent(PeerT& p, std::uint64_t bytes, bool whole_message) {
  count_resent(p, bytes, whole_message);
  note_resumed(p);
}

template <class P>
void Engine<P>::count_resent(PeerT& p, std::uint64_t bytes, bool whole_message) {
  counters_.bytes_resent += bytes;
  if (whole_message) ++counters_.messages_resent;
  for (unsigned i = 0; i < p.n_rails; ++i) {
    RailT& r = p.rails[i];
    if (!r.event_open) continue;
    r.event.bytes_resent += bytes;
    if (whole_message) ++r.event.messages_resent;
  }
}

template <class P>
void Engine<P>::note_resumed(PeerT& p) {
  if (p.n_eager == 0) return;
  for (unsigned i = 0; i < p.n_rails; ++i)
    if (p.rails[i].event_open && p.rails[i].event.resumed_ns == 0)
      p.rails[i].event.resumed_ns = port_.now_ns();
}

template <class P>
void Engine<P>::note_restart(PeerT& p) {
  for (unsigned i = 0; i < p.n_rails; ++i)
    if (p.rails[i].event_open) ++p.rails[i].event.restarts;
}

/// A failover's record is complete when the rail is closed and no request of the peer is in the dance any
/// more.
template <class P>
void Engine<P>::emit_events(PeerT& p, bool now) {
  for (unsigned i = 0; i < p.n_rails; ++i) {
    RailT& r = p.rails[i];
    if (!r.event_open) continue;
    bool busy = r.event.closed_ns == 0;
    for (SendRequest* s = p.live_sends.front(); s && !busy; s = p.live_sends.next(s))
      busy = s->xfer.phase == SendPhase::kDraining || s->xfer.phase == SendPhase::kNotified;
    for (RecvRequest* q = p.live_recvs.front(); q && !busy; q = p.live_recvs.next(q))
      busy = q->xfer.phase == RecvPhase::kAsking || q->xfer.phase == RecvPhase::kQuiescing ||
             q->xfer.phase == RecvPhase::kQuiet;
    if (busy && !now) continue;
    r.event_open = false;
    r.event.duplicates_dropped = counters_.duplicates - r.event.duplicates_dropped;
    r.event.rails_left = p.n_eager;
    port_.emit(r.event);
  }
}

}  // namespace bfo::xfer
