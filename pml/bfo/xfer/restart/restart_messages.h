// SPDX-License-Identifier: BSD-3-Clause
//
// restart_messages.h: the restart messages and SENDDONE, sent and received (see restart.h).
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <algorithm>

#include "pml/bfo/xfer/engine.h"
#include "pml/bfo/xfer/rails/limits.h"

namespace bfo::xfer {

// ---- sent

inline core::RestartHdr restart_header(core::MsgType type, std::uint8_t flags, const core::MatchHdr& id,
                                       Name sender, Name receiver) {
  return core::RestartHdr{
      static_cast<std::uint8_t>(type), flags, id.ctx, id.src, id.seq, 0, 0, sender.value, receiver.value};
}

template <class P>
void Engine<P>::stored_restart(PeerT& p, MsgType type, std::uint8_t flags, const core::MatchHdr& id,
                               Name sender, Name receiver) {
  const core::RestartHdr h = restart_header(type, flags, id, sender, receiver);
  send_stored(p, &h, sizeof h);
}

template <class P>
void Engine<P>::answer_nack(RecvRequest& r) {
  auto& x = r.xfer;
  stored_restart(*x.proc->peer, MsgType::kRestartNack, x.failed() ? core::kFlagFail : 0, x.identity(),
                 x.rndv->peer_name, x.rndv->name);
}

// ---- sending what the state requires

/// Number of list entries that fit into a message over any of the peer's usable rails, at most `most`.
template <class P>
std::size_t entries_fit(const Peer<P>& p, std::size_t header, std::size_t entry, std::size_t most) {
  std::size_t n = most;
  for (unsigned i = 0; i < p.choice.size(); ++i)
    n = std::min(n, entries_that_fit(p.choice[i].limits, header, entry));
  return n;
}

/// NOTIFY certifies rails as clean. A list that has to be shortened reports fewer: the other rails are
/// fenced.
template <class P>
bool Engine<P>::send_notify(SendRequest& r) {
  auto& x = r.xfer;
  PeerT& p = *x.proc->peer;
  struct {
    core::RestartHdr h;
    core::WireRail rails[kMaxRails];
  } m;
  m.h = restart_header(MsgType::kRestartNotify, 0, x.identity(), x.rndv->name, x.rndv->peer_name);
  const std::size_t limit = entries_fit(p, sizeof m.h, sizeof m.rails[0], kMaxRails);
  std::uint16_t n = 0;
  for (unsigned i = 0; i < p.n_rails && n < limit; ++i) {
    if (x.rndv->dirty_rails & (1u << i)) continue;
    m.rails[n++] = core::WireRail{p.rails[i].name.conn, p.rails[i].name.epoch, 0};
  }
  m.h.n = n;
  m.h.frags = x.rndv->frags;
  return post_control(p, &m, sizeof m.h + n * sizeof(core::WireRail), FragKind::kControl, x.rndv->name,
                      false);
}

template <class P>
bool Engine<P>::send_recv_err(RecvRequest& r) {
  auto& x = r.xfer;
  const core::RestartHdr h =
      restart_header(MsgType::kRecvErr, 0, x.identity(), x.rndv->peer_name, x.rndv->name);
  return post_control(*x.proc->peer, &h, sizeof h, FragKind::kControl, x.rndv->name, true);
}

/// RESTARTACK lists what was received; bytes that do not fit count as received (H14).
template <class P>
bool Engine<P>::send_restart_ack(RecvRequest& r) {
  auto& x = r.xfer;
  struct {
    core::RestartHdr h;
    core::WireRange ranges[core::kMaxWireRanges];
  } m;
  const Name sender = x.rndv->peer_name.at(x.rndv->name.round());
  m.h = restart_header(MsgType::kRestartAck, x.rndv->no_rdma ? core::kFlagNoRdma : 0, x.identity(), sender,
                       x.rndv->name);
  const std::size_t limit = entries_fit(*x.proc->peer, sizeof m.h, sizeof m.ranges[0], core::kMaxWireRanges);
  std::uint16_t n = 0;
  if (x.length > x.rndv->want && limit > 0) m.ranges[n++] = core::WireRange{x.rndv->want, x.length};
  for (std::uint32_t i = 0; i < x.rndv->received.count() && limit > 0; ++i) {
    const core::WireRange range{x.rndv->received[i].begin, x.rndv->received[i].end};
    if (n < limit) {
      m.ranges[n++] = range;
      continue;
    }
    // what is not listed is sent again (P4): leave out the shortest
    core::WireRange* least = m.ranges;
    for (std::uint16_t k = 1; k < n; ++k)
      if (m.ranges[k].end - m.ranges[k].begin < least->end - least->begin) least = &m.ranges[k];
    if (least->end - least->begin < range.end - range.begin) *least = range;
  }
  m.h.n = n;
  if (!post_control(*x.proc->peer, &m, sizeof m.h + n * sizeof(core::WireRange), FragKind::kControl,
                    x.rndv->name, true))
    return false;
  records_.note_resumed(*x.proc->peer);  // the transfer continues, whichever side carries its bytes
  return true;
}

// ---- received

template <class P>
void Engine<P>::on_notify(const Arrival& a) {
  core::RestartHdr h;
  core::WireRail clean[core::kMaxWireRails];
  NameState state;
  if (!core::decode_restart(a.bytes, h, clean, core::kMaxWireRails)) {
    ++counters_.malformed;
    return;
  }
  RecvRequest* const r = recvs_.find(Name(h.receiver), a, state);
  if (!r) {
    if (state == NameState::kNever) return;
    CommT* const c = comms_.find(h.ctx);
    ProcT* const p = c ? proc_at(*c, h.src) : nullptr;
    PeerT* const peer = p ? peer_of(*p) : (a.rail ? a.rail->peer : nullptr);
    if (!peer || !from_peer(a.rail, peer)) {
      ++counters_.malformed;
      return;
    }
    const core::MatchHdr id{0, 0, h.ctx, h.src, 0, h.seq};
    stored_restart(*peer, MsgType::kRestartNack, state == NameState::kFailed ? core::kFlagFail : 0, id,
                   Name(h.sender), Name(h.receiver));
    flush(*peer);
    return;
  }
  auto& x = r->xfer;
  if (x.seq != h.seq || x.comm->ctx != h.ctx || x.proc->rank != h.src ||
      !x.rndv->peer_name.same_request(Name(h.sender))) {
    ++counters_.malformed;
    return;
  }
  RecvInput in;
  in.restart = &h;
  in.clean = clean;
  in.arrival = &a;
  const int ahead = Name(h.sender).round() - x.rndv->name.round();
  if (ahead == 1)
    recv_event(*r, RecvEvent::kNotify, in);
  else if (ahead == 0)
    recv_event(*r, RecvEvent::kNotifyAgain, in);
  else
    ++(ahead < 0 ? counters_.stale : counters_.malformed);
  flush(*x.proc->peer);
}

/// Polls of all rails, a millisecond or more apart, for FRAGs that were delivered and have not come.
inline constexpr std::uint8_t kPolls = 3;

/// NOTIFY came. Grants that the sender certifies are over, own READs end by themselves, everything else is
/// fenced.
template <class P>
void Engine<P>::quiesce(RecvRequest& r, const RecvInput& in) {
  auto& x = r.xfer;
  if (x.phase == RecvPhase::kQuiescing) {
    x.pending = 0;
    x.rndv->todo.clear();
    x.rndv->frags_due = in.restart->frags;
    x.rndv->polls_left = kPolls;
    if (x.rndv->frags < x.rndv->frags_due) set_timer(*x.proc->peer);
  }
  for (LedgerT* e = x.rndv->ledger; e;) {
    LedgerT* const next = e->next;
    bool over = Ledgers<P>::grant_over(*e);
    for (unsigned i = 0; e->grant != 0 && i < in.restart->n; ++i)
      over = over || (in.clean[i].conn == e->conn && in.clean[i].epoch == e->epoch);
    if (over) ledgers_.remove(x.rndv->ledger, e);
    e = next;
  }
  ledgers_.fence_grants(x.rndv->ledger);
}

/// NOTIFY may overtake FRAGs that a rail had delivered before: this process was outside MPI, and it reads the
/// queue of one rail before the other's. What it reports now as missing would be sent again (P4). So it polls
/// every rail a few times more. The number of polls is bounded, because a device that breaks may lose
/// messages that it had acknowledged.
template <class P>
[[gnu::cold]] void Engine<P>::poll_for_frags(PeerT& p) {
  bool over = false;
  for (RecvRequest* r = p.live_recvs.front(); r;) {
    RecvRequest* const next = p.live_recvs.next(r);
    auto& x = r->xfer;
    if (x.phase == RecvPhase::kQuiescing && x.rndv->frags < x.rndv->frags_due) {
      if (--x.rndv->polls_left != 0) {
        set_timer(p);
      } else {
        x.rndv->frags_due = 0;
        over = true;
        recv_check(*r);
      }
    }
    r = next;
  }
  if (over) flush(p);
}

template <class P>
void Engine<P>::on_restart_ack(const Arrival& a) {
  core::RestartHdr h;
  core::WireRange ranges[core::kMaxWireRanges];
  if (!core::decode_restart(a.bytes, h, ranges, core::kMaxWireRanges)) {
    ++counters_.malformed;
    return;
  }
  SendRequest* const r = sends_.find_current(Name(h.sender), a);
  if (!r) {
    // If a send failed alone, nobody reopens the round: the receiver must not wait for it.
    const NameState state = sends_.state_of(Name(h.sender));
    if (state == NameState::kFailed) answer_send_done(a, h, state);
    return;
  }
  auto& x = r->xfer;
  for (unsigned i = 0; i < h.n; ++i)
    if (ranges[i].begin > ranges[i].end || ranges[i].end > x.length) {
      ++counters_.malformed;
      return;
    }
  if (x.seq != h.seq || !x.rndv->peer_name.same_request(Name(h.receiver))) {
    ++counters_.malformed;
    return;
  }
  SendInput in;
  in.restart = &h;
  in.ranges = ranges;
  in.arrival = &a;
  send_event(*r, SendEvent::kRestartAck, in);
  flush(*x.proc->peer);
}

template <class P>
void Engine<P>::on_nack(const Arrival& a) {
  core::RestartHdr h;
  NameState state;
  if (!core::decode(a.bytes, h)) {
    ++counters_.malformed;
    return;
  }
  SendRequest* const r = sends_.find(Name(h.sender), a, state);
  if (!r) return;
  auto& x = r->xfer;
  if (x.seq != h.seq || Name(h.sender).round() > x.rndv->name.round()) {
    ++counters_.malformed;
    return;
  }
  PeerT& peer = *x.proc->peer;
  SendInput in;
  in.all_read =
      x.rndv->restarts != 0 || !x.sent_before;  // without a restart it may have come as an eager message
  send_event(*r, (h.flags & core::kFlagFail) ? SendEvent::kNackFailed : SendEvent::kNack, in);
  flush(peer);
}

/// About a send that is complete. It is answered even if its communicator was freed here: the receiver may
/// still need the answer.
template <class P>
void Engine<P>::answer_send_done(const Arrival& a, const core::RestartHdr& h, NameState state) {
  PeerT* const peer = a.rail ? a.rail->peer : nullptr;
  if (!peer) {
    ++counters_.malformed;
    return;
  }
  const core::MatchHdr id{0, 0, h.ctx, h.src, 0, h.seq};
  stored_restart(*peer, MsgType::kSendDone, state == NameState::kFailed ? core::kFlagFail : 0, id,
                 Name(h.sender), Name(h.receiver));
  flush(*peer);
}

template <class P>
void Engine<P>::on_recv_err(const Arrival& a) {
  core::RestartHdr h;
  NameState state;
  if (!core::decode(a.bytes, h)) {
    ++counters_.malformed;
    return;
  }
  const Name name(h.sender);
  SendRequest* const r = sends_.find(name, a, state);
  if (!r) {
    if (state == NameState::kFinished || state == NameState::kFailed) answer_send_done(a, h, state);
    return;
  }
  auto& x = r->xfer;
  if (x.seq != h.seq || name.round() > x.rndv->name.round()) {
    ++counters_.malformed;
    return;
  }
  if (!x.rndv->peer_name) x.rndv->peer_name = Name(h.receiver);
  PeerT& peer = *x.proc->peer;
  send_event(*r, name.round() == x.rndv->name.round() ? SendEvent::kRecvErr : SendEvent::kRecvErrOld);
  flush(peer);
}

template <class P>
void Engine<P>::on_send_done(const Arrival& a) {
  core::RestartHdr h;
  NameState state;
  if (!core::decode(a.bytes, h)) {
    ++counters_.malformed;
    return;
  }
  RecvRequest* const r = recvs_.find(Name(h.receiver), a, state);
  if (!r) return;
  auto& x = r->xfer;
  if (x.seq != h.seq || !x.rndv->peer_name.same_request(Name(h.sender))) {
    ++counters_.malformed;
    return;
  }
  PeerT& peer = *x.proc->peer;
  recv_event(*r, (h.flags & core::kFlagFail) ? RecvEvent::kSendFailed : RecvEvent::kSendDone);
  flush(peer);
}

}  // namespace bfo::xfer
