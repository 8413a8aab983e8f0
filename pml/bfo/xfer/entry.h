// SPDX-License-Identifier: BSD-3-Clause
//
// entry.h: how calls enter and leave the engine: the lock, callbacks that come while the engine is inside a
// port function, and completions. Completions run after the lock was released, because they may run user
// code.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <utility>

#include "common/check.h"
#include "pml/bfo/xfer/engine.h"
#include "pml/bfo/xfer/rails/judge.h"

namespace bfo::xfer {

/// The lock, held; the outermost one does on leaving what has to be done then.
template <class P>
class Engine<P>::Entry {
 public:
  explicit Entry(Engine& e) : e_(e) {
    e_.lock_.lock();
    ++e_.depth_;
  }
  ~Entry() {
    if (e_.base_.exit_work.any() && e_.depth_ == 1) [[unlikely]] {
      e_.leave_slow();
      return;
    }
    --e_.depth_;
    e_.lock_.unlock();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  bool nested() const { return e_.depth_ > 1; }

 private:
  Engine& e_;
};

template <class P>
Engine<P>::Engine(P& port, const Config& config) : base_(port, config) {}

template <class P>
Engine<P>::~Engine() {
  matching_.free_all();
  while (auto* a = base_.exit_work.take_message()) base_.port.free(a);
  base_.failing.free_all();
  failover_.free_all();
  while (PeerT* p = base_.peers.pop_front()) {
    moves_.forget(*p);
    rails_.drop_stored(*p);
    p->past.free_all(base_.port);
    for (unsigned i = 0; i < p->n_rails; ++i) {
      base_.records.free(p->rails[i]);
      free_degraded(base_, p->rails[i]);
      p->rails[i].~RailT();
      if (i != 0) base_.port.free(p->rails.at[i]);  // the first one is in the peer's memory
    }
    p->failed_receives.free_all(base_.port);
    p->~PeerT();
    base_.port.free(p);
  }
  moves_.free_all();
}

/// What came while the engine was inside a port function.
template <class P>
[[gnu::noinline]] void Engine<P>::do_deferred() {
  while (base_.exit_work.has_deferred()) {
    if (Frag* f = base_.exit_work.take_done()) {
      handle_done(*f);
      continue;
    }
    if (auto* a = base_.exit_work.take_message()) {
      const Bytes in{a->bytes(), a->size};
      if (a->failed)
        moves_.brief_lost(*a->rail->peer, static_cast<MsgType>(a->tag), in);
      else if (RecvRequest* r = dispatch(a->rail, a->epoch, a->tag, in))
        take_eager(*r, in);
      base_.port.free(a);
      continue;
    }
    failover_.fail_scheduled();
  }
}

/// Leave the outermost entry with deferred callbacks, or with requests to complete.
template <class P>
[[gnu::noinline]] void Engine<P>::leave_slow() {
  if (base_.exit_work.has_deferred()) [[unlikely]]
    do_deferred();
  if (base_.records.any_due()) [[unlikely]]
    base_.records.report_due(base_.peers.front(), moves_);
  auto completed = base_.exit_work.take_completed();
  --depth_;
  lock_.unlock();
  // The owner may reuse a request as soon as it is completed, so it is unlinked first.
  while (SendRequest* r = completed.sends.pop_front()) base_.port.complete_send(*r, r->xfer.outcome);
  while (RecvRequest* r = completed.recvs.pop_front()) base_.port.complete_recv(*r, r->xfer.status);
}

template <class P>
void Engine<P>::defer(RailT* rail, uint32_t epoch, uint8_t tag, const void* data, size_t size, bool failed) {
  if (!base_.exit_work.add_message(base_.port, rail, epoch, tag, data, size, failed))
    return base_.failing.no_memory(rail, epoch, size);
  ++base_.counters.deferred;
}

/// An eager message was matched with `r` while the lock is held. The request is completed when the engine is
/// left.
template <class P>
void Engine<P>::take_eager(RecvRequest& r, Bytes in) {
  matching_.unpack(r, in.from(sizeof(core::MatchHdr)));
  base_.finish_recv(r);
}

template <class P>
void Engine<P>::on_message(RailT* rail, uint32_t epoch, uint8_t tag, const void* data, size_t size) {
  RecvRequest* r = nullptr;
  const Bytes in{static_cast<const uint8_t*>(data), size};
  {
    Entry entry(*this);
    if (entry.nested()) [[unlikely]] {
      defer(rail, epoch, tag, data, size);
      return;
    }
    if (rail != nullptr && epoch != 0 && epoch <= rail->closed_epoch) [[unlikely]] {
      ++base_.counters.stale;  // after FENCED nothing of that epoch counts (H3)
      return;
    }
    r = dispatch(rail, epoch, tag, in);
  }
  if (r != nullptr) {
    matching_.unpack(*r, in.from(sizeof(core::MatchHdr)));
    base_.port.complete_recv(*r, r->xfer.status);
  }
}

template <class P>
void Engine<P>::on_done(Frag* frag, Fate fate) {
  Entry entry(*this);
  frag->xfer.fate = fate;
  if (entry.nested()) [[unlikely]] {  // the engine was inside a port function
    base_.exit_work.add_done(frag);
    ++base_.counters.deferred;
    return;
  }
  if (frag->xfer.kind == FragKind::kRead) [[likely]] {
    PeerT& peer = *frag->xfer.peer;
    rails_.ended(*frag);
    moves_.read_over(*frag);
    base_.port.frag_free(*frag);
    flush(peer);
    return;
  }
  handle_done(*frag);
}

template <class P>
void Engine<P>::handle_done(Frag& f) {
  PeerT& peer = *f.xfer.peer;
  rails_.ended(f);
  if (f.xfer.kind == FragKind::kStored) {
    stored_done(f);
  } else {
    moves_.frag_over(f);
    base_.port.frag_free(f);
  }
  flush(peer);
}

/// A stored message was delivered, or came back: it is sent again, unless nobody has to hear it any more.
template <class P>
void Engine<P>::stored_done(Frag& f) {
  auto& x = f.xfer;
  PeerT& peer = *x.peer;
  const bool ok = x.fate == Fate::kDelivered;
  completing_ends(peer, f);
  if (x.grant >= kPing) {
    // A lost one is not sent again: the loss of its rail says enough.
    peer.backlog.ping_ends(x.grant - kPing);
  } else if (!ok && x.type == static_cast<uint8_t>(MsgType::kPeerLost)) {
    peer.standing.set_notice_pending(true);
    base_.set_timer(peer);
  } else if (!ok && !peer.standing.ended()) {
    moves_.stored_again(peer,
                        Bytes{x.buffer ? static_cast<const uint8_t*>(x.buffer) : x.stored, x.stored_len});
    return rails_.store_again(peer, f);
  }
  if (x.buffer) base_.port.free(x.buffer);
  base_.port.frag_free(f);
}

template <class P>
uint64_t Engine<P>::unfinished() const {
  uint64_t n = rails_.frags_out() + moves_.unfinished() + base_.port.copies_out();
  for (PeerT* p = base_.peers.front(); p; p = p->next) {
    if (!p->backlog.nothing_stored() || !p->backlog.syncs.empty() || !p->backlog.unnamed.empty()) ++n;
    if (!p->standing.failed() && (!p->backlog.ready_sends.empty() || !p->backlog.ready_recvs.empty())) ++n;
  }
  return n;
}

template <class P>
int Engine<P>::progress(uint64_t now_ns) {
  turn();
  if (!needs_progress()) return 0;
  Entry entry(*this);
  if (entry.nested()) return 0;
  const uint64_t before = base_.counters.control_sent + base_.counters.bytes_sent + base_.counters.eager_sent;
  base_.agenda.each_active([this](PeerT& p) { flush(p); });
  if (base_.agenda.due(now_ns)) check_timers(now_ns);
  return base_.counters.control_sent + base_.counters.bytes_sent + base_.counters.eager_sent != before ? 1
                                                                                                       : 0;
}

template <class P>
void Engine<P>::check_timers(uint64_t now_ns) {
  if (base_.agenda.begin_look(now_ns)) base_.peers.credit_absence(now_ns, base_.config.park_timeout_ns);
  base_.agenda.each_timed([this, now_ns](PeerT& p) {
    if (failover_.look(p, now_ns)) flush(p);
  });
  // A stalled sender asks again, because the last answer may have been given before the receiver had caught
  // up.
  base_.agenda.each_stalled([this](ProcT& p) { release_stalled(p); });
}

}  // namespace bfo::xfer
