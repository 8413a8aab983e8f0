// SPDX-License-Identifier: BSD-3-Clause
//
// restart_messages.h: the restart messages and SENDDONE, sent and received (see restart.h).
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <algorithm>

#include "pml/bfo/xfer/moves/transfers.h"
#include "pml/bfo/xfer/rails/limits.h"

namespace bfo::xfer {

inline core::RestartHdr restart_header(core::MsgType type, uint8_t flags, const core::MatchHdr& id,
                                       Name sender, Name receiver) {
  return core::RestartHdr{
      static_cast<uint8_t>(type), flags, id.ctx, id.src, id.seq, 0, 0, sender.value, receiver.value};
}

template <class P>
void Transfers<P>::stored_restart(PeerT& p, MsgType type, uint8_t flags, const core::MatchHdr& id,
                                  Name sender, Name receiver) {
  const core::RestartHdr h = restart_header(type, flags, id, sender, receiver);
  base_.port.trace_sent(p.handle, &h, sizeof h);
  rails_.send_stored(p, &h, sizeof h);
}

/// Number of list entries that fit into a message over any of the peer's usable rails, at most `most`.
template <class P>
size_t entries_fit(const Peer<P>& p, size_t header, size_t entry, size_t most) {
  size_t n = most;
  for (unsigned i = 0; i < p.choice.size(); ++i)
    n = std::min(n, entries_that_fit(p.choice[i].limits, header, entry));
  return n;
}

/// Polls of all rails, a millisecond or more apart, for FRAGs that were delivered and have not come.
inline constexpr uint8_t kPolls = 3;

template <class P>
struct RestartMessages {
  using E = Transfers<P>;
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;
  using Arrival = typename E::Arrival;

  // ---- sending what the state requires

  /// NOTIFY certifies rails as clean. A list that has to be shortened reports fewer: the other rails are
  /// fenced. It also goes over each rail that has written: behind the writes there, it says that they are in
  /// place.
  static bool send_notify(E& e, SendRequest& r) {
    auto& x = r.xfer;
    Peer<P>& p = *x.proc->peer;
    struct {
      core::RestartHdr h;
      core::WireRail rails[kMaxRails];
    } m;
    m.h = restart_header(core::MsgType::kRestartNotify, 0, x.identity(), x.rndv->name, x.rndv->peer_name);
    const size_t limit = entries_fit(p, sizeof m.h, sizeof m.rails[0], kMaxRails);
    uint16_t n = 0;
    uint32_t written = 0;
    for (unsigned i = 0; i < p.n_rails && n < limit; ++i) {
      // Nothing comes behind the writes of a rail that is down here.
      if ((x.rndv->dirty_rails & (1u << i)) || !p.rails[i].usable(p.rails[i].name.epoch)) continue;
      const uint32_t wrote = x.rndv->wrote_rails >> i & 1;
      m.rails[n++] = core::WireRail{p.rails[i].name.conn, p.rails[i].name.epoch, wrote};
      written |= wrote << i;
    }
    m.h.n = n;
    m.h.frags = x.rndv->frags;
    const size_t size = sizeof m.h + n * sizeof(core::WireRail);
    if (!e.rails_.post_control(p, &m, size, FragKind::kControl, x.rndv->name, false)) return false;
    e.base_.port.trace_sent(p.handle, &m, size);
    for (unsigned i = 0; written >> i; ++i) {
      if (!(written >> i & 1)) continue;
      e.base_.port.trace_sent(p.handle, &m, size);
      e.rails_.send_stored(p, &m, size, &p.rails[i], p.rails[i].name.epoch);
    }
    return true;
  }

  static bool send_recv_err(E& e, RecvRequest& r) {
    auto& x = r.xfer;
    const core::RestartHdr h =
        restart_header(core::MsgType::kRecvErr, 0, x.identity(), x.rndv->peer_name, x.rndv->name);
    if (!e.rails_.post_control(*x.proc->peer, &h, sizeof h, FragKind::kControl, x.rndv->name, true))
      return false;
    e.base_.port.trace_sent(x.proc->peer->handle, &h, sizeof h);
    return true;
  }

  /// RESTARTACK lists what was received; bytes that do not fit count as received (H14).
  static bool send_restart_ack(E& e, RecvRequest& r) {
    auto& x = r.xfer;
    struct {
      core::RestartHdr h;
      core::WireRange ranges[core::kMaxWireRanges];
    } m;
    const Name sender = x.rndv->peer_name.at(x.rndv->name.round());
    m.h = restart_header(core::MsgType::kRestartAck, x.rndv->no_rdma ? core::kFlagNoRdma : 0, x.identity(),
                         sender, x.rndv->name);
    const size_t limit = entries_fit(*x.proc->peer, sizeof m.h, sizeof m.ranges[0], core::kMaxWireRanges);
    uint16_t n = 0;
    if (x.length > x.rndv->want && limit > 0) m.ranges[n++] = core::WireRange{x.rndv->want, x.length};
    for (uint32_t i = 0; i < x.rndv->received.count() && limit > 0; ++i) {
      const core::WireRange range{x.rndv->received[i].begin, x.rndv->received[i].end};
      if (n < limit) {
        m.ranges[n++] = range;
        continue;
      }
      // what is not listed is sent again (P4): leave out the shortest
      core::WireRange* least = m.ranges;
      for (uint16_t k = 1; k < n; ++k)
        if (m.ranges[k].end - m.ranges[k].begin < least->end - least->begin) least = &m.ranges[k];
      if (least->end - least->begin < range.end - range.begin) *least = range;
    }
    m.h.n = n;
    const size_t size = sizeof m.h + n * sizeof(core::WireRange);
    if (!e.rails_.post_control(*x.proc->peer, &m, size, FragKind::kControl, x.rndv->name, true)) return false;
    e.base_.port.trace_sent(x.proc->peer->handle, &m, size);
    e.base_.records.note_resumed(*x.proc->peer);  // the transfer continues, whichever side carries its bytes
    return true;
  }

  static void answer_nack(E& e, RecvRequest& r) {
    auto& x = r.xfer;
    e.stored_restart(*x.proc->peer, core::MsgType::kRestartNack, x.failed() ? core::kFlagFail : 0,
                     x.identity(), x.rndv->peer_name, x.rndv->name);
  }

  // ---- received

  static Peer<P>* on_notify(E& e, const Arrival& a, core::Bytes bytes) {
    core::RestartHdr h;
    core::WireRail clean[core::kMaxWireRails];
    NameState state;
    if (!core::decode_restart(core::MsgType::kRestartNotify, bytes, h, clean, core::kMaxWireRails)) {
      ++e.base_.counters.malformed;
      return nullptr;
    }
    RecvRequest* const r = e.recvs_.find(Name(h.receiver), a, state);
    if (!r) {
      if (state == NameState::kNever) return nullptr;
      Comm<P>* const c = e.matching_.find(h.ctx);
      Proc<P>* const p = c ? e.matching_.proc_at(*c, h.src) : nullptr;
      Peer<P>* const peer = p ? e.matching_.peer_of(*p) : (a.rail ? a.rail->peer : nullptr);
      if (!peer || !from_peer(a.rail, peer)) {
        ++e.base_.counters.malformed;
        return nullptr;
      }
      const core::MatchHdr id{0, 0, h.ctx, h.src, 0, h.seq};
      e.stored_restart(*peer, core::MsgType::kRestartNack, state == NameState::kFailed ? core::kFlagFail : 0,
                       id, Name(h.sender), Name(h.receiver));
      return peer;
    }
    auto& x = r->xfer;
    if (x.seq != h.seq || x.comm->ctx != h.ctx || x.proc->rank != h.src ||
        !x.rndv->peer_name.same_request(Name(h.sender))) {
      ++e.base_.counters.malformed;
      return nullptr;
    }
    typename E::RecvInput in;
    in.restart = &h;
    in.clean = clean;
    in.arrival = &a;
    const int ahead = Name(h.sender).round() - x.rndv->name.round();
    if (ahead == 1)
      e.recv_event(*r, core::RecvEvent::kNotify, in);
    else if (ahead == 0)
      e.recv_event(*r, core::RecvEvent::kNotifyAgain, in);
    else
      ++(ahead < 0 ? e.base_.counters.stale : e.base_.counters.malformed);
    return x.proc->peer;
  }

  /// NOTIFY came for the first time, or a request that is over is asked.
  static void quiesce(E& e, RecvRequest& r, const typename E::RecvInput& in) {
    auto& x = r.xfer;
    if (x.phase == core::RecvPhase::kQuiescing) {
      x.pending = 0;
      x.rndv->todo.clear();
      x.rndv->frags_due = in.restart->frags;
      x.rndv->polls_left = kPolls;
      if (x.rndv->frags < x.rndv->frags_due) e.base_.set_timer(*x.proc->peer);
    }
    certify(e, r, in);
  }

  /// Grants on a clean rail are over: at once where the sender has not written, else when NOTIFY has come
  /// over that rail, behind the writes. An acknowledged write need not be in place before (H1). Every other
  /// grant is fenced. Own READs end by themselves.
  static void certify(E& e, RecvRequest& r, const typename E::RecvInput& in) {
    auto& x = r.xfer;
    for (LedgerEntry<P>* l = x.rndv->ledger; l;) {
      LedgerEntry<P>* const next = l->next;
      const core::WireRail* const end = in.clean + in.restart->n;
      const core::WireRail* const clean = std::find_if(in.clean, end, [&](const core::WireRail& rail) {
        return rail.conn == l->conn && rail.epoch == l->epoch;
      });
      if (l->grant == 0) {
        // a READ of this process
      } else if (Ledgers<P>::grant_over(*l)) {
        e.ledgers_.remove(x.rndv->ledger, l);
      } else if (clean == end) {
        e.ledgers_.fence_grant(*l);
      } else if (clean->written == 0 || !l->rail->limits.failover || in.arrival->over(*l->rail, l->epoch)) {
        e.ledgers_.remove(x.rndv->ledger, l);
      }
      l = next;
    }
  }

  /// NOTIFY may overtake FRAGs that a rail had delivered before: this process was outside MPI, and it reads
  /// the queue of one rail before the other's. What it reports now as missing would be sent again (P4). So it
  /// polls every rail a few times more. The number of polls is bounded, because a device that breaks may lose
  /// messages that it had acknowledged. True: what waits for `p` is to be posted.
  [[gnu::cold]] static bool poll_for_frags(E& e, Peer<P>& p) {
    bool over = false;
    for (RecvRequest* r = p.live_recvs.front(); r;) {
      RecvRequest* const next = p.live_recvs.next(r);
      auto& x = r->xfer;
      if (x.phase == core::RecvPhase::kQuiescing && x.rndv->frags < x.rndv->frags_due) {
        if (--x.rndv->polls_left != 0) {
          e.base_.set_timer(p);
        } else {
          x.rndv->frags_due = 0;
          over = true;
          e.recv_check(*r);
        }
      }
      r = next;
    }
    return over;
  }

  static Peer<P>* on_restart_ack(E& e, const Arrival& a, core::Bytes bytes) {
    core::RestartHdr h;
    core::WireRange ranges[core::kMaxWireRanges];
    if (!core::decode_restart(core::MsgType::kRestartAck, bytes, h, ranges, core::kMaxWireRanges)) {
      ++e.base_.counters.malformed;
      return nullptr;
    }
    SendRequest* const r = e.sends_.find_current(Name(h.sender), a);
    if (!r) {
      // If a send failed alone, nobody reopens the round: the receiver must not wait for it.
      const NameState state = e.sends_.state_of(Name(h.sender));
      return state == NameState::kFailed ? answer_send_done(e, a, h, state) : nullptr;
    }
    auto& x = r->xfer;
    for (unsigned i = 0; i < h.n; ++i)
      if (ranges[i].begin > ranges[i].end || ranges[i].end > x.length) {
        ++e.base_.counters.malformed;
        return nullptr;
      }
    if (x.seq != h.seq || !x.rndv->peer_name.same_request(Name(h.receiver))) {
      ++e.base_.counters.malformed;
      return nullptr;
    }
    typename E::SendInput in;
    in.restart = &h;
    in.ranges = ranges;
    in.arrival = &a;
    e.send_event(*r, core::SendEvent::kRestartAck, in);
    return x.proc->peer;
  }

  static Peer<P>* on_nack(E& e, const Arrival& a, core::Bytes bytes) {
    core::RestartHdr h;
    NameState state;
    if (!core::decode(core::MsgType::kRestartNack, bytes, h)) {
      ++e.base_.counters.malformed;
      return nullptr;
    }
    SendRequest* const r = e.sends_.find(Name(h.sender), a, state);
    if (!r) return nullptr;
    auto& x = r->xfer;
    if (x.seq != h.seq || Name(h.sender).round() > x.rndv->name.round()) {
      ++e.base_.counters.malformed;
      return nullptr;
    }
    Peer<P>& peer = *x.proc->peer;
    typename E::SendInput in;
    in.all_read =
        x.rndv->restarts != 0 || !x.sent_before;  // without a restart it may have come as an eager message
    const bool failed = (h.flags & core::kFlagFail) != 0;
    // A receive that never had a name has read nothing: no rail is fenced for the exposed buffer.
    if (failed && h.receiver == 0) x.rndv->exposed = 0;
    e.send_event(*r, failed ? core::SendEvent::kNackFailed : core::SendEvent::kNack, in);
    return &peer;
  }

  /// About a send that is complete. It is answered even if its communicator was freed here: the receiver may
  /// still need the answer.
  static Peer<P>* answer_send_done(E& e, const Arrival& a, const core::RestartHdr& h, NameState state) {
    Peer<P>* const peer = a.rail ? a.rail->peer : nullptr;
    if (!peer) {
      ++e.base_.counters.malformed;
      return nullptr;
    }
    const core::MatchHdr id{0, 0, h.ctx, h.src, 0, h.seq};
    e.stored_restart(*peer, core::MsgType::kSendDone, state == NameState::kFailed ? core::kFlagFail : 0, id,
                     Name(h.sender), Name(h.receiver));
    return peer;
  }

  static Peer<P>* on_recv_err(E& e, const Arrival& a, core::Bytes bytes) {
    core::RestartHdr h;
    NameState state;
    if (!core::decode(core::MsgType::kRecvErr, bytes, h)) {
      ++e.base_.counters.malformed;
      return nullptr;
    }
    const Name name(h.sender);
    SendRequest* const r = e.sends_.find(name, a, state);
    if (!r) {
      const bool over = state == NameState::kFinished || state == NameState::kFailed;
      return over ? answer_send_done(e, a, h, state) : nullptr;
    }
    auto& x = r->xfer;
    if (x.seq != h.seq || name.round() > x.rndv->name.round()) {
      ++e.base_.counters.malformed;
      return nullptr;
    }
    if (!x.rndv->peer_name) x.rndv->peer_name = Name(h.receiver);
    Peer<P>& peer = *x.proc->peer;
    e.send_event(
        *r, name.round() == x.rndv->name.round() ? core::SendEvent::kRecvErr : core::SendEvent::kRecvErrOld);
    return &peer;
  }

  static Peer<P>* on_send_done(E& e, const Arrival& a, core::Bytes bytes) {
    core::RestartHdr h;
    NameState state;
    if (!core::decode(core::MsgType::kSendDone, bytes, h)) {
      ++e.base_.counters.malformed;
      return nullptr;
    }
    RecvRequest* const r = e.recvs_.find(Name(h.receiver), a, state);
    if (!r) return nullptr;
    auto& x = r->xfer;
    if (x.seq != h.seq || !x.rndv->peer_name.same_request(Name(h.sender))) {
      ++e.base_.counters.malformed;
      return nullptr;
    }
    Peer<P>& peer = *x.proc->peer;
    e.recv_event(*r, (h.flags & core::kFlagFail) ? core::RecvEvent::kSendFailed : core::RecvEvent::kSendDone);
    return &peer;
  }
};

}  // namespace bfo::xfer
