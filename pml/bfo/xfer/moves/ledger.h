// SPDX-License-Identifier: BSD-3-Clause
//
// ledger.h: the grants and READs that may still reach a buffer (P2), and how they are fenced. The ledger of a
// request is a list of entries. Owns the entries that are not in use; their memory is the port's. Who takes
// an entry out asks the gate of the request afterwards (send_check, recv_check). Used under the engine's
// lock.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <cstdint>
#include <new>
#include <utility>

#include "common/check.h"
#include "pml/bfo/xfer/base/pool.h"
#include "pml/bfo/xfer/counters.h"
#include "pml/bfo/xfer/base/agenda.h"
#include "pml/bfo/xfer/state.h"

namespace bfo::xfer {

template <class P>
class Ledgers {
 public:
  using Entry = LedgerEntry<P>;
  using SendRequest = typename P::SendRequest;

  Ledgers(P& port, Counters& counters, Agenda<P>& agenda)
      : port_(port), counters_(counters), agenda_(agenda) {}

  Entry* add(Entry*& head, Rail<P>& rail, uint32_t epoch, uint64_t begin, uint64_t end);
  void remove(Entry*& head, Entry* e);
  /// remove() of the only entry.
  [[gnu::always_inline]] void remove_only(Entry*& head) {
    Entry* const e = head;
    BFO_DCHECK(e && !e->next);
    if (e->loaded) e->rail->inflight_bytes -= e->end - e->begin;
    head = nullptr;
    pool_.give(e);
  }
  void remove_all(Entry*& head) {
    while (head) remove(head, head);
  }
  void hold_until_fenced(SendRequest& r, Rail<P>& rail, uint32_t epoch, uint64_t begin, uint64_t end);
  static bool grant_over(const Entry& e);
  void fence_all(Entry*& head);
  void fence_unlisted(SendRequest& r);
  void fence_grant(Entry& e);
  /// No request has an entry.
  void free_all() { pool_.free_all(port_); }

 private:
  void fence_rail(Rail<P>& rail, uint32_t epoch);

  P& port_;
  Counters& counters_;
  Agenda<P>& agenda_;
  Pool<Entry, &Entry::next> pool_;
};

/// nullptr: there is no memory; the access must not be started.
template <class P>
[[gnu::always_inline]] inline LedgerEntry<P>* Ledgers<P>::add(Entry*& head, Rail<P>& rail, uint32_t epoch,
                                                              uint64_t begin, uint64_t end) {
  Entry* const e = pool_.take(port_);
  if (!e) [[unlikely]]
    return nullptr;
  ::new (e) Entry;
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
[[gnu::always_inline]] inline void Ledgers<P>::remove(Entry*& head, Entry* e) {
  Entry** at = &head;
  while (*at && *at != e) at = &(*at)->next;
  if (!*at) [[unlikely]]
    return;
  if (e->loaded) e->rail->inflight_bytes -= e->end - e->begin;
  *at = e->next;
  pool_.give(e);
}

/// For an access that was started already: without memory for an entry, the rail itself is marked.
template <class P>
void Ledgers<P>::hold_until_fenced(SendRequest& r, Rail<P>& rail, uint32_t epoch, uint64_t begin,
                                   uint64_t end) {
  if (!add(r.xfer.rndv->ledger, rail, epoch, begin, end))
    r.xfer.rndv->unfenced = static_cast<uint16_t>(r.xfer.rndv->unfenced | 1u << rail.index);
}

/// fence_all() for the accesses that hold_until_fenced() could not list.
template <class P>
void Ledgers<P>::fence_unlisted(SendRequest& r) {
  Peer<P>& p = *r.xfer.proc->peer;
  for (unsigned i = 0; r.xfer.rndv->unfenced >> i; ++i) {
    if (!(r.xfer.rndv->unfenced >> i & 1)) continue;
    fence_rail(p.rails[i], p.rails[i].name.epoch);
  }
}

template <class P>
void Ledgers<P>::fence_rail(Rail<P>& rail, uint32_t epoch) {
  ++counters_.fences;
  port_.fence(rail.handle, epoch);
  if (rail.state != RailState::kUnusable) return;
  rail.unfenceable = true;  // it may have been declared unfenceable before this access existed
  agenda_.set_timer(*rail.peer);
}

/// No write of this grant is possible: the sender does not have it, or its epoch is closed here, or was never
/// up (0). A fence of that epoch would report nothing.
template <class P>
bool Ledgers<P>::grant_over(const Entry& e) {
  return e.grant != 0 && (!e.sent() || (e.rail->limits.failover && e.epoch <= e.rail->closed_epoch));
}

/// Fence every epoch that may still reach the buffer. A rail whose BTL has no fence does not lose connections
/// (such a BTL aborts the job), so it can only have own READs to wait for.
template <class P>
void Ledgers<P>::fence_all(Entry*& head) {
  for (Entry* e = head; e;) {
    Entry* const next = e->next;
    if (grant_over(*e)) {
      remove(head, e);
    } else if (e->rail->limits.failover) {
      fence_rail(*e->rail, e->epoch);
    } else if (e->grant != 0) {
      remove(head, e);
    }
    e = next;
  }
}

/// The same for one grant; once.
template <class P>
void Ledgers<P>::fence_grant(Entry& e) {
  if (!e.rail->limits.failover || std::exchange(e.dead, true)) return;
  ++counters_.fences;
  port_.fence(e.rail->handle, e.epoch);
}

}  // namespace bfo::xfer
