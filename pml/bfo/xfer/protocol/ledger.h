// SPDX-License-Identifier: BSD-3-Clause
//
// ledger.h: the grants and READs that may still reach a buffer (P2), and how they are fenced.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// The gate (P2): no access that this request granted or started can still be executed.
template <class P>
template <class X>
inline bool Engine<P>::gate_clear(const X& x) const {
  if constexpr (requires { x.rndv->unfenced; })
    if (x.rndv->unfenced != 0 && !gate_removed()) return false;
  return gate_removed() || (x.rndv->in_flight == 0 && x.rndv->ledger == nullptr);
}

/// A test's port may remove the gate, to see that its checkers notice.
template <class P>
inline bool Engine<P>::gate_removed() const {
  if constexpr (requires { port_.gate_removed(); }) return port_.gate_removed();
  return false;
}

/// nullptr: there is no memory; the access must not be started.
template <class P>
[[gnu::always_inline]] inline LedgerEntry<P>* Engine<P>::ledger_add(LedgerT*& head, RailT& rail,
                                                                    std::uint32_t epoch, std::uint64_t begin,
                                                                    std::uint64_t end) {
  LedgerT* const e = ledger_pool_.take(port_);
  if (!e) [[unlikely]]
    return nullptr;
  ::new (e) LedgerT;
  e->rail = &rail;
  e->conn = rail.name.conn;
  e->epoch = epoch;
  e->begin = begin;
  e->end = end;
  e->next = head;
  head = e;
  return e;
}

template <class P>
[[gnu::always_inline]] inline void Engine<P>::ledger_remove(LedgerT*& head, LedgerT* e) {
  LedgerT** at = &head;
  while (*at && *at != e) at = &(*at)->next;
  if (!*at) [[unlikely]]
    return;
  if (e->loaded) e->rail->inflight_bytes -= e->end - e->begin;
  *at = e->next;
  ledger_pool_.give(e);
}

/// For an access that was started already: without memory for an entry, the rail itself is marked.
template <class P>
void Engine<P>::hold_until_fenced(SendRequest& r, RailT& rail, std::uint32_t epoch, std::uint64_t begin,
                                  std::uint64_t end) {
  if (!ledger_add(r.xfer.rndv->ledger, rail, epoch, begin, end))
    r.xfer.rndv->unfenced = static_cast<std::uint16_t>(r.xfer.rndv->unfenced | 1u << rail.index);
}

/// fence_all() for the accesses that hold_until_fenced() could not list.
template <class P>
void Engine<P>::fence_unlisted(SendRequest& r) {
  PeerT& p = *r.xfer.proc->peer;
  for (unsigned i = 0; r.xfer.rndv->unfenced >> i; ++i) {
    if (!(r.xfer.rndv->unfenced >> i & 1)) continue;
    fence_rail(p.rails[i], p.rails[i].name.epoch);
  }
}

template <class P>
void Engine<P>::fence_rail(RailT& rail, std::uint32_t epoch) {
  ++counters_.fences;
  port_.fence(rail.handle, epoch);
  if (rail.state != RailState::kUnusable) return;
  rail.unfenceable = true;  // it may have been declared unfenceable before this access existed
  set_timer(*rail.peer);
}

/// No write of this grant is possible: the sender does not have it, or its epoch is closed here, or was never
/// up (0). A fence of that epoch would report nothing.
template <class P>
bool Engine<P>::grant_over(const LedgerT& e) {
  return e.grant != 0 && (!e.sent || (e.rail->limits.failover && e.epoch <= e.rail->closed_epoch));
}

/// Fence every epoch that may still reach the buffer. A rail whose BTL has no fence does not lose connections
/// (such a BTL aborts the job), so it can only have own READs to wait for.
template <class P>
void Engine<P>::fence_all(LedgerT*& head) {
  for (LedgerT* e = head; e;) {
    LedgerT* const next = e->next;
    if (grant_over(*e)) {
      ledger_remove(head, e);
    } else if (e->rail->limits.failover) {
      fence_rail(*e->rail, e->epoch);
    } else if (e->grant != 0) {
      ledger_remove(head, e);
    }
    e = next;
  }
}

/// The same for grants only: own READs end by themselves.
template <class P>
void Engine<P>::fence_grants(LedgerT* head) {
  for (LedgerT* e = head; e; e = e->next) {
    if (e->grant == 0 || !e->rail->limits.failover) continue;
    ++counters_.fences;
    port_.fence(e->rail->handle, e->epoch);
  }
}

}  // namespace bfo::xfer
