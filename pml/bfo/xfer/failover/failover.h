// SPDX-License-Identifier: BSD-3-Clause
//
// failover.h: Failover, what this process knows of its rails and peers: the states and epochs of rails, what
// the peer is notified of when one dies, peers that are declared failed, receives from any source then, and
// signs of life. What a loss means for a request, the transfers know. Used under the engine's lock. The
// bodies are in rail_events.h, peer_failure.h and keepalive.h.
#pragma once

#include <cstdint>

#include "pml/bfo/xfer/failover/early_notices.h"
#include "pml/bfo/xfer/failover/wildcard.h"
#include "pml/bfo/xfer/moves/moves.h"

namespace bfo::xfer {

template <class P>
class Failover {
 public:
  using Frag = typename P::Frag;
  using PeerT = Peer<P>;
  using RailT = Rail<P>;
  using CommT = Comm<P>;
  using ProcT = Proc<P>;
  using Arrival = xfer::Arrival<P>;
  using Bytes = core::Bytes;
  using MsgType = core::MsgType;

  /// What it is given outlives it.
  Failover(Base<P>& base, Rails<P>& rails, Matching<P>& matching, Moves<P>& moves)
      : base_(base),
        rails_(rails),
        matching_(matching),
        moves_(moves),
        wildcards_(base.port, base.config.any_source_on_loss, matching) {}
  Failover(const Failover&) = delete;
  Failover& operator=(const Failover&) = delete;

  /// Gives its memory back.
  void free_all() { early_.free_all(base_.port); }

  // ---- rails; Engine says what each means
  void begin(RailT& r, RailState state, RailName name);
  void up(RailT* rail, const RailEvent& ev);
  void suspect(RailT* rail, const RailEvent& ev);
  void down(RailT* rail, const RailEvent& reported);
  void closed(RailT* rail, const RailEvent& reported, FenceResult result, uint64_t delivered);
  void broken(RailT* rail, const RailEvent& ev, bool may_have_lost);
  void peer_alive(RailT* rail, bool alive);
  void on_rail_message(const Arrival& a, MsgType type, Bytes in);
  void post_notices(PeerT& p);

  // ---- peers
  void on_peer_lost(const Arrival& a, Bytes in);
  void declare_failed(PeerT& p, bool loss = true);
  void fail_scheduled();
  void gap_lost(PeerT& p);
  bool look(PeerT& p, uint64_t now_ns);

  // ---- receives from any source, and signs of life
  void comm_made(CommT& c) { wildcards_.comm_made(c); }
  void watch_wildcards();
  bool keep_alive(PeerT& p);

 private:
  void rebuild(PeerT& p);
  void notice(RailT& r, const core::RailHdr& h);
  void notify_lost(PeerT& p);
  void tell_no_rail(PeerT& p, uint64_t now_ns);
  static bool has_work(const PeerT& p);
  bool ping(PeerT& p, ProcT& via);

  Base<P>& base_;
  Rails<P>& rails_;
  Matching<P>& matching_;
  Moves<P>& moves_;
  Wildcards<P> wildcards_;
  EarlyNotices early_;
};

}  // namespace bfo::xfer

#include "pml/bfo/xfer/failover/rail_events.h"
#include "pml/bfo/xfer/failover/peer_failure.h"
#include "pml/bfo/xfer/failover/keepalive.h"
