// SPDX-License-Identifier: BSD-3-Clause
//
// peers.h: all peers of this process, and which of their rails a message is about. The records belong to the
// engine. Used under the engine's lock. Needs no memory, cannot fail.
#pragma once

#include <cstdint>

#include "pml/bfo/xfer/state.h"

namespace bfo::xfer {

template <class P>
class Peers {
 public:
  using PeerT = Peer<P>;
  using RailT = Rail<P>;

  void add(PeerT& p) {
    p.next = first_;
    first_ = &p;
  }
  /// The newest; `next` leads to the others.
  PeerT* front() const { return first_; }
  PeerT* pop_front() {
    PeerT* const p = first_;
    if (p) first_ = p->next;
    return p;
  }
  /// The rail whose connection, or last dead one, is `conn`. A connection name is known only to its two
  /// processes, so a message that names it is from that peer. `via`: the rail over which the message came;
  /// a peer may name only its own connections. nullptr: there is none.
  RailT* rail_of(const RailT* via, uint64_t conn) const {
    PeerT* const only = via ? via->peer : nullptr;
    for (PeerT* p = only ? only : first_; p && conn != 0; p = only ? nullptr : p->next)
      for (unsigned i = 0; i < p->n_rails; ++i)
        if (p->rails[i].name.conn == conn || p->rails[i].dead.conn == conn) return &p->rails[i];
    return nullptr;
  }

  /// This process was outside MPI: no park time ends for that alone.
  [[gnu::cold]] void credit_absence(uint64_t now_ns, uint64_t park_timeout_ns) {
    for (PeerT* p = first_; p; p = p->next) p->standing.credit_absence(now_ns, park_timeout_ns);
  }

 private:
  PeerT* first_ = nullptr;
};

}  // namespace bfo::xfer
