// SPDX-License-Identifier: BSD-3-Clause
//
// base.h: what all owners of the engine stand on: the port, the configuration, all peers, whom progress() has
// to look at, and the sinks that anybody may write to: counters, work for the end of the call, peers that
// have to be declared failed, records of failovers. Used under the engine's lock.
#pragma once

#include "pml/bfo/xfer/counters.h"
#include "pml/bfo/xfer/base/exit_work.h"
#include "pml/bfo/xfer/base/failing.h"
#include "pml/bfo/xfer/port.h"
#include "pml/bfo/xfer/base/agenda.h"
#include "pml/bfo/xfer/base/peers.h"
#include "pml/bfo/xfer/base/record.h"

namespace bfo::xfer {

template <class P>
struct Base {
  /// `p` outlives it.
  Base(P& p, const Config& c) : port(p), config(c) {}
  Base(const Base&) = delete;
  Base& operator=(const Base&) = delete;

  P& port;
  const Config config;
  Counters counters;
  ExitWork<P> exit_work;
  Agenda<P> agenda;
  Peers<P> peers;
  Failing<P> failing{port, peers, exit_work};
  FailoverRecords<P> records{port, counters, exit_work};

  /// Something waits for `p`: it is posted when the engine is left, or by progress(). Whoever puts something
  /// into a list of the peer, or makes a rail usable, calls this, so that nothing is forgotten.
  void activate(Peer<P>& p) { agenda.activate(p); }
  /// From now on progress() looks at `p` and at the clock.
  void set_timer(Peer<P>& p) { agenda.set_timer(p); }
  /// The request is complete. Its owner hears of it when the engine is left.
  void finish_send(typename P::SendRequest& r, Outcome outcome) {
    r.xfer.outcome = outcome;
    exit_work.add_complete(r);
  }
  void finish_recv(typename P::RecvRequest& r) { exit_work.add_complete(r); }
};

}  // namespace bfo::xfer
